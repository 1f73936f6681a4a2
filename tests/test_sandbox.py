"""Untrusted programs cannot hurt the worker, forge a verdict, reach the network, or leave anything behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprise.sandbox import MODULES, PROTECTIONS, Ending, Limits, Sandbox, SandboxError
from reprise.sandbox.process import _answers

LOOSE = (*MODULES, "ctypes", "os", "signal", "socket", "sys", "threading", "time")
SHORT = Limits(cpu_seconds=1, wall_seconds=0.25)
HONEST = "def f(x): return 3 * x"
ROOT = os.geteuid() == 0


@pytest.fixture(scope="module", params=["all", "without namespaces"])
def sandbox(request):
    wanted = PROTECTIONS if request.param == "all" else ("nobody", "calls")
    with Sandbox(wanted, modules=LOOSE) as made:
        yield made


def needs(sandbox, *names):
    if missing := [name for name in names if name not in sandbox.protections.on]:
        pytest.skip(f"the kernel refuses {missing[0]}: {sandbox.protections.missing.get(missing[0])}")


def alive(marker):
    """Processes whose command line holds `marker`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


# -- right answers -----------------------------------------------------------------------------------------------------


def test_functions_are_called_and_their_values_returned(sandbox):
    source = "def f(x): return 3 * x\ndef g(x, y): return {'sum': x + y, 'list': [x, None, True, 1.5, 'é']}"
    answers = sandbox.evaluate(source, [("f", [14]), ("g", [1, 2]), ("f", [0]), ("h", [0])])
    value = {"sum": 3, "list": [1, None, True, 1.5, "é"]}
    assert answers.ending == Ending.EXITED
    assert answers.calls == ((True, 42), (True, value), (True, 0), (False, "KeyError"))


@pytest.mark.parametrize(
    "source, error",
    [
        ("def f(): return 1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("import http.server\ndef f(): return 1", "ModuleNotFoundError"),
        ("def f(): return object()", "TypeError"),
        ("def f(): return float('nan')", "ValueError"),
        ("def f(): raise SystemExit(0)", "SystemExit"),
        ("raise KeyboardInterrupt\ndef f(): return 1", "KeyboardInterrupt"),
    ],
)
def test_an_error_is_a_wrong_answer_with_its_name(sandbox, source, error):
    assert sandbox.evaluate(source, [("f", [])]).calls == ((False, error),)


def test_a_value_that_claims_to_equal_everything_arrives_as_what_it_is(sandbox):
    source = "class Any(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\ndef f(): return Any(7)"
    assert sandbox.evaluate(source, [("f", [])]).calls == ((True, 7),)


def test_jobs_share_nothing(sandbox):
    assert sandbox.evaluate("import math\nmath.pi = 3\ndef f(): return math.pi", [("f", [])]).calls == ((True, 3),)
    assert sandbox.evaluate("import math\ndef f(): return math.pi > 3.1", [("f", [])]).calls == ((True, True),)


def test_verdicts_do_not_depend_on_the_worker():
    source = "import random\ndef f(): return [random.random(), hash('a'), list({'a', 'b', 'c', 'd'})]"
    with Sandbox() as one, Sandbox() as two:
        assert one.evaluate(source, [("f", [])]) == two.evaluate(source, [("f", [])])


# -- hostile programs --------------------------------------------------------------------------------------------------

HOSTILE = {
    "exits": ("import os\nos._exit(0)", None),
    "loops": ("while True: pass", None),
    "floods the output": ("import sys\nwhile True: sys.stdout.write('x' * 10**6)", None),
    "floods every descriptor": (
        "import os\nfds = list(range(64))\nwhile True:\n    for fd in fds:\n"
        "        try: os.write(fd, b'x' * 10**6)\n        except OSError: pass",
        None,
    ),
    "closes every descriptor": ("import os\nos.closerange(0, 99)", None),
    "takes all memory": ("x = [0] * 10**10", ((False, "MemoryError"),)),
    "hogs memory slowly": ("x = []\nwhile True: x.append(bytearray(10**7))", ((False, "MemoryError"),)),
    "forks without end": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        None,
    ),
    "starts threads without end": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        ((False, "RuntimeError"),),
    ),
    "recurses without end": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "class A:\n    def __getattr__(self, name): return getattr(self, name)\nA().x",
        None,
    ),
    "crashes": ("import ctypes\nctypes.string_at(0)", None),
    "stops itself": (
        "import os, signal\ntry: os.kill(os.getpid(), signal.SIGSTOP)\nexcept OSError: pass\nwhile True: pass",
        None,
    ),
    "sleeps": ("import time\ntime.sleep(99)", None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_fails_and_the_worker_goes_on(sandbox, name):
    source, wanted = HOSTILE[name]
    worker = sandbox._worker.pid
    answers = sandbox.evaluate(f"{source}\ndef f(x): return 3 * x", [("f", [14])], SHORT)
    assert answers.calls in (wanted, None)  # None also where a loaded machine reaches the wall clock first
    assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)
    assert sandbox._worker.pid == worker


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "0", "1", "of this test"])
def test_it_cannot_kill_others(sandbox, target):
    target = str(os.getpid()) if target == "of this test" else target
    worker = sandbox._worker.pid
    source = f"import os, signal\ntry: os.kill({target}, signal.SIGKILL)\nexcept OSError: pass\n{HONEST}"
    sandbox.evaluate(source, [("f", [14])], SHORT)
    assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)
    assert sandbox._worker.pid == worker and sandbox._worker.poll() is None


def test_what_is_written_in_place_of_answers_is_only_another_answer(sandbox):
    """The wanted values never enter the process, so that a forged reply has to guess them all the same."""

    def forged(text):
        source = (
            f"import os\nfor fd in range(3, 64):\n    try: os.write(fd, {text!r}.encode())\n    except OSError: pass"
        )
        return sandbox.evaluate(f"{source}\nos._exit(0)\n{HONEST}", [("f", [1]), ("f", [2])]).calls

    assert forged('[["value", 3], ["value", 9]]') == ((True, 3), (True, 9))
    for nonsense in (
        '[["value", 3]]',
        "[" * 100_000,
        "{}",
        "null",
        "[1, 2]",
        '{"all": "passed"}',
        "",
        "\x00\xff",
        "9" * 9999,
    ):
        assert forged(nonsense) is None, nonsense


def test_nothing_can_be_written(sandbox, tmp_path):
    tmp_path.chmod(0o777)
    name = f"sandbox-{os.getpid()}"
    places = [f"{folder}/{name}" for folder in ("/tmp", "/dev/shm", "/var/tmp", tmp_path)]
    source = (
        "def f(place):\n    try:\n        with open(place, 'wb') as file: file.write(bytes(10))\n"
        "    except OSError: return 0\n    with open(place, 'rb') as file: return len(file.read())"
    )
    answers = sandbox.evaluate(source, [("f", [place]) for place in places], SHORT)
    assert answers.calls == ((True, 0),) * len(places)
    if "mount" in sandbox.protections.on:
        assert not any(Path(place).exists() for place in places)
    for place in places:
        Path(place).unlink(missing_ok=True)


def test_no_connection_can_be_made(sandbox):
    needs(sandbox, "net" if "net" in sandbox.protections.on else "calls")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = "import socket\ndef f(address, port): socket.socket().connect((address, port))"
        calls = [("f", ["127.0.0.1", server.getsockname()[1]]), ("f", ["192.0.2.1", 80])]
        answers = sandbox.evaluate(source, calls, SHORT).calls
    assert [ok for ok, _ in answers] == [False, False]
    assert {name for _, name in answers} <= {"ConnectionRefusedError", "PermissionError", "OSError"}


def test_it_has_no_rights_and_an_empty_environment(sandbox):
    source = (
        "import os\ndef f(): return [dict(os.environ), os.getuid(), os.getgroups()]\n"
        "def g(): return dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())"
    )
    (_, (environment, uid, groups)), (_, status) = sandbox.evaluate(source, [("f", []), ("g", [])]).calls
    assert set(environment) == {"PYTHONHASHSEED", "LC_ALL"}
    assert status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0
    if ROOT:
        assert uid == sandbox._user >= 61184 and groups == []


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_runs(sandbox):
    data = os.urandom(300_000)
    finished = sandbox.run(["/bin/sh", "-c", "cat; echo trouble >&2; exit 3"], Limits(processes=4), stdin=data)
    assert (finished.ending, finished.code, finished.ok) == (Ending.EXITED, 3, False)
    assert finished.stdout == data and finished.stderr == b"trouble\n"


def test_a_command_that_is_too_loud_or_too_slow_is_stopped(sandbox):
    limits = Limits(cpu_seconds=1, wall_seconds=0.5, processes=4, output_bytes=1000)
    loud = sandbox.run(["/bin/sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done"], limits)
    assert loud.ending == Ending.OUTPUT and loud.stdout == b"xxxxxxxxxxxxxxxx\n" * 58 + b"xxxxxxxxxxxxxx"
    assert sandbox.run(["/bin/sleep", "99"], limits).ending == Ending.TIMEOUT


def test_the_processors_seconds_are_counted_whatever_the_wall_clock_says():
    with Sandbox() as sandbox:
        busy = sandbox.run(["/bin/sh", "-c", "while :; do :; done"], Limits(cpu_seconds=1, wall_seconds=60))
        assert (busy.ending, busy.code) == (Ending.KILLED, -signal.SIGKILL)


def test_descendants_end_with_the_command(sandbox):
    marker = f"98{os.getpid()}"
    script = f"for i in 1 2 3 4 5; do setsid sleep {marker} & done; (sleep {marker} & sleep {marker} &) ; echo started"
    finished = sandbox.run(["/bin/sh", "-c", script], Limits(processes=20, wall_seconds=5))
    assert finished.ok and finished.stdout == b"started\n"
    assert alive(marker) == []


def test_a_fork_bomb_of_a_command_is_bounded_and_cleared_away(sandbox):
    script = "bomb() { bomb | bomb & }; bomb; while :; do :; done"
    finished = sandbox.run(["/bin/sh", "-c", script], Limits(processes=20, wall_seconds=0.5, cpu_seconds=1))
    assert not finished.ok
    assert alive("bomb | bomb") == []
    assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)


def test_a_command_writes_where_it_may_and_no_more_than_it_may(sandbox, tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir(mode=0o755)
    other.mkdir(mode=0o755)
    for folder in tmp_path.parents:  # pytest's own folders are closed to nobody
        if ROOT and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    script = f"echo here > file; echo there > {other}/file; head -c 9000 /dev/zero > large; echo $HOME"
    limits = Limits(processes=4, file_bytes=4096)
    finished = sandbox.run(["/bin/sh", "-c", script], limits, folder=own, writable=[own])
    assert finished.stdout.decode() == f"{own}\n"
    assert (own / "file").read_text() == "here\n"
    assert (own / "large").stat().st_size <= 4096
    if ROOT or "mount" in sandbox.protections.on:
        assert list(other.iterdir()) == []


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(argv=[]), "^argv="),
        (dict(argv=["true"]), "^argv="),
        (dict(argv=["/bin/true"], folder="/no/such"), "^folder /no/such"),
        (dict(argv=["/bin/no-such-program"]), "^/bin/no-such-program: it could not be started"),
    ],
)
def test_a_command_that_cannot_be_run_is_named(sandbox, kwargs, message):
    with pytest.raises(SandboxError, match=message):
        sandbox.run(**kwargs)


# -- the worker itself -------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_is_started_again_and_the_job_tried_once_more():
    with Sandbox() as sandbox:
        first = sandbox._worker.pid
        os.killpg(first, signal.SIGKILL)
        assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)
        assert sandbox._worker.pid != first


def test_a_job_that_ends_every_worker_is_a_failed_job(monkeypatch):
    with Sandbox() as sandbox:
        sent = sandbox._send

        def send(message):
            os.killpg(sandbox._worker.pid, signal.SIGKILL)
            return sent(message)

        monkeypatch.setattr(sandbox, "_send", send)
        answers = sandbox.evaluate(HONEST, [("f", [14])])
        assert (answers.ending, answers.calls) == (Ending.WORKER, None)
        monkeypatch.undo()
        assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)


def test_nothing_is_left_when_the_owner_is_killed():
    marker = f"97{os.getpid()}"
    program = (
        "from reprise.sandbox import *; s = Sandbox(); print(s._worker.pid, flush=True); "
        f"s.run(['/bin/sh', '-c', 'sleep {marker} & sleep {marker}'], Limits(processes=4))"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    worker = owner.stdout.readline().strip()
    deadline = time.monotonic() + 20
    while not alive(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(marker)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    while (alive(marker) or Path(f"/proc/{worker}").exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(marker) == [] and not Path(f"/proc/{worker}").exists()


def test_a_forked_copy_gets_a_worker_of_its_own():
    with Sandbox() as sandbox:
        child = os.fork()
        if child == 0:
            right = sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)
            sandbox.close()
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sandbox.evaluate(HONEST, [("f", [14])]).calls == ((True, 42),)


def test_what_is_missing_is_said():
    with Sandbox(("net",)) as sandbox:
        assert set(sandbox.protections.on) | set(sandbox.protections.missing) >= {
            "nobody",
            "pid",
            "net",
            "ipc",
            "mount",
        }
        assert sandbox.protections.missing["mount"] == "not asked for"
        assert "no mount: not asked for" in str(sandbox.protections)


# run by an ordinary user: kill, hang, write, look at one's rights
AS_USER = """
import json, os
from reprise.sandbox import Limits, Sandbox
sandbox = Sandbox(modules=("os",))
def answers(source):
    return sandbox.evaluate(source, [("f", [])], Limits(wall_seconds=5, cpu_seconds=1)).calls
print(json.dumps([
    os.getuid(), sandbox.protections.on, dict(sandbox.protections.missing),
    answers("import os\\ntry: os.kill(os.getppid(), 9)\\nexcept OSError: pass\\ndef f(): return os.getuid()"),
    answers("while True: pass"),
    answers("def f(): open('/dev/shm/sandbox', 'w').write('x')"),
    answers("def f(): return [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapE')]"),
]))
"""


def test_an_ordinary_user_is_protected_too():
    """As root: the same again in a process that has given root up, but may still read the interpreter."""
    if not ROOT:
        pytest.skip("not root: every other test here has run as an ordinary user")
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("no setpriv")
    capability = "+dac_read_search"
    drop = [setpriv, "--reuid", "1234", "--regid", "1234", "--clear-groups", f"--inh-caps={capability}"]
    run = subprocess.run(
        [*drop, f"--ambient-caps={capability}", sys.executable, "-c", AS_USER], capture_output=True, text=True, cwd="/"
    )
    if "not permitted" in run.stderr and "setpriv" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stderr
    uid, on, missing, killed, looped, wrote, rights = json.loads(run.stdout)
    assert uid == 1234 and "nobody" in missing
    assert {"pid", "net"} <= set(on) or "calls" in on or "calls" in missing
    assert killed == [[True, 1234]] and looped is None and wrote[0][0] is False
    assert rights == [[True, ["0" * 16]]]


@pytest.mark.parametrize(
    "kwargs, name",
    [
        (dict(cpu_seconds=0), "cpu_seconds"),
        (dict(cpu_seconds=1.5), "cpu_seconds"),
        (dict(wall_seconds=0), "wall_seconds"),
        (dict(wall_seconds=float("inf")), "wall_seconds"),
        (dict(memory=0), "memory"),
        (dict(processes=-1), "processes"),
        (dict(open_files=1), "open_files"),
        (dict(output_bytes=0), "output_bytes"),
    ],
)
def test_limits_name_the_bad_field(kwargs, name):
    with pytest.raises(SandboxError, match=f"^{name}="):
        Limits(**kwargs)


def test_an_unknown_protection_is_named():
    with pytest.raises(SandboxError, match="^protections=\\['prayer'\\]"):
        Sandbox(("prayer",))


def test_a_reply_of_another_shape_is_no_answer():
    import base64

    def reply(text):
        return {"reply": base64.b64encode(text.encode()).decode()}

    assert _answers(reply('[["value", 1], ["error", "E"]]'), 2) == ((True, 1), (False, "E"))
    assert _answers(reply('["ab", "cd"]'), 2) == ((False, "b"), (False, "d"))  # pairs all the same, and wrong
    assert _answers(reply('[["value", 1]]'), 2) is None
