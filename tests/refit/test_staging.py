"""Outputs appear whole or not at all, and never in place of something that was not asked for."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from checkpoints import contents, small_pair, write_folder

from reprise.refit.checkpoints import staging
from reprise.refit.checkpoints.checkpoint_apply import apply_checkpoint
from reprise.refit.checkpoints.checkpoint_diff import diff_checkpoints
from reprise.refit.checkpoints.safetensors_file import CheckpointError
from reprise.refit.checkpoints.staging import created, staged

WEIGHTS = {"m.safetensors": {"w": ("U8", (1,), b"a")}}


def make_file(out, force=False, inputs=(), data=b"new"):
    with staged(out, inputs, force) as path, created(path) as file:
        file.write(data)


def make_folder(out, force=False):
    with staged(out, [], force, folder=True) as path:
        write_folder(path, {"a": b"new", "b/c": b"new"})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_and_a_folder_appear_at_the_end(tmp_path):
    with staged(tmp_path / "out", []) as path, created(path) as file:
        file.write(b"new")
        assert not (tmp_path / "out").exists()
    make_folder(tmp_path / "folder")
    assert contents(tmp_path) == {"out": b"new", "folder/a": b"new", "folder/b/c": b"new"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing(tmp_path, error):
    with (
        pytest.raises(error),
        staged(tmp_path / "out", []) as path,
        created(path / "x" if path.mkdir() else path / "y"),
    ):
        raise error
    assert names(tmp_path) == []


def test_names_of_any_length_and_script_work(tmp_path):
    for name in ("x" * 255, "ä" * 127, "\U0001f600" * 63):
        make_file(tmp_path / name)
        with pytest.raises(KeyError), staged(tmp_path / name, [], force=True) as path, created(path):
            raise KeyError
    assert len(names(tmp_path)) == 3


def test_an_existing_output_is_kept_without_force(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("nowhere")
    write_folder(tmp_path / "folder", WEIGHTS)
    for name in ("file", "link", "folder"):
        with pytest.raises(CheckpointError, match="exists already"):
            make_file(tmp_path / name)
    with pytest.raises(CheckpointError, match="appeared meanwhile"), staged(tmp_path / "late", []) as path:
        path.write_bytes(b"new")
        (tmp_path / "late").write_bytes(b"other")
    assert names(tmp_path) == ["file", "folder", "late", "link"]
    assert (tmp_path / "late").read_bytes() == b"other"


@pytest.mark.parametrize("make", [make_file, make_folder])
def test_force_replaces_files_links_and_checkpoints(tmp_path, make):
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "folder", WEIGHTS | {"x/y": b"old"})
    for name in ("file", "link") if make is make_file else ("link", "folder", "empty"):
        make(tmp_path / name, force=True)
        assert set(contents(tmp_path / name).values()) == {b"new"} and not (tmp_path / name).is_symlink()
    assert (tmp_path / "target").read_bytes() == b"kept"
    assert names(tmp_path) == ["empty", "file", "folder", "link", "target"]


def test_force_does_not_replace_a_folder_of_other_things(tmp_path):
    write_folder(tmp_path / "home", {"thesis.txt": b"years"})
    with pytest.raises(CheckpointError, match="not replaced even by --force"):
        make_folder(tmp_path / "home", force=True)
    assert contents(tmp_path) == {"home/thesis.txt": b"years"}


def test_a_replaced_folder_comes_back_if_the_new_one_cannot_move(tmp_path):
    write_folder(tmp_path / "out", WEIGHTS)
    before = contents(tmp_path)
    with pytest.raises(FileNotFoundError), staged(tmp_path / "out", [], force=True, folder=True) as path:
        path.with_name("other").write_bytes(b"")  # nothing at the path itself
    assert contents(tmp_path) == before


def test_an_output_never_overlaps_an_input(tmp_path):
    old = write_folder(tmp_path / "old", WEIGHTS)
    (tmp_path / "link").symlink_to(old)
    (tmp_path / "hard.safetensors").hardlink_to(old / "m.safetensors")
    clashes = [
        (old, [old]),
        (old, [tmp_path / "link"]),
        (tmp_path / "link", [old]),
        (tmp_path / "link", [tmp_path / "link"]),
        (old / ".." / "old", [old]),
        (old / "new", [old]),
        (tmp_path / "link" / "new", [old]),
        (old, [old / "m.safetensors"]),
        (tmp_path, [old]),
        (tmp_path / "hard.safetensors", [old / "m.safetensors"]),
    ]
    for out, inputs in clashes:
        with pytest.raises(CheckpointError, match="is the input|overlaps with the input"):
            make_file(out, force=True, inputs=inputs)
    assert set(names(tmp_path)) == {"old", "link", "hard.safetensors"}
    make_file(tmp_path / "older", inputs=[old])
    for out in (tmp_path / "no" / "out", tmp_path / "older" / "out", "/"):
        with pytest.raises(CheckpointError, match="its folder does not exist"):
            make_file(out)


def test_a_stale_room_is_removed_and_a_living_one_is_not(tmp_path):
    stale, other = tmp_path / ".out.99999999.partial", tmp_path / ".outer.99999999.partial"
    for room in (stale, other):
        write_folder(room, {"new/x": b"half"})
    with staged(tmp_path / "out", []) as path:
        assert not stale.exists() and other.exists()
        room = path.parent
        room.rename(tmp_path / ".out.12345.partial")  # as if another process had it: locked all the same
        make_file(tmp_path / "out")
        assert (tmp_path / ".out.12345.partial").exists()
        (tmp_path / ".out.12345.partial").rename(room)
        (tmp_path / "out").unlink()
        path.write_bytes(b"late")
    assert (tmp_path / "out").read_bytes() == b"late" and other.exists()


def test_a_folder_taken_aside_by_a_killed_run_is_put_back(tmp_path):
    write_folder(tmp_path / ".out.99999999.partial", {f"{staging.REPLACED}/m.safetensors": b"old", "new/x": b"half"})
    with pytest.raises(KeyError), staged(tmp_path / "out", []):
        raise KeyError
    assert contents(tmp_path) == {"out/m.safetensors": b"old"}


KILLED = """
    import contextlib, os, signal, sys
    from reprise.refit.checkpoints.checkpoint_apply import apply_checkpoint

    left = int(sys.argv[4])

    @contextlib.contextmanager
    def progress(label, nbytes):
        def done(count):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        yield done

    apply_checkpoint(*sys.argv[1:4], progress=progress)
"""


@pytest.mark.parametrize("step", [2, 9])
def test_a_killed_apply_leaves_no_output_and_the_next_one_cleans_up(tmp_path, step):
    old, new = small_pair(tmp_path)
    delta, out = tmp_path / "d.rdl", tmp_path / "out"
    diff_checkpoints(old, new, delta)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), old, delta, out, str(step)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert not out.exists() and any(path.name.endswith(".partial") for path in tmp_path.iterdir())
    apply_checkpoint(old, delta, out)
    assert contents(out) == contents(new) and names(tmp_path) == ["d.rdl", "new", "old", "out"]


def test_an_interrupt_leaves_nothing(tmp_path):
    old, new = small_pair(tmp_path)
    diff_checkpoints(old, new, tmp_path / "d.rdl")
    code = textwrap.dedent(KILLED).replace("signal.SIGKILL", "signal.SIGINT")
    run = subprocess.run(
        [sys.executable, "-c", code, old, tmp_path / "d.rdl", tmp_path / "out", "5"], stderr=subprocess.PIPE
    )
    assert b"KeyboardInterrupt" in run.stderr and names(tmp_path) == ["d.rdl", "new", "old"]


@pytest.fixture
def full_disk(tmp_path):
    """A file system with 200 kB of room."""
    room = tmp_path / "small"
    room.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", room], stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("no small file system: mounting a tmpfs is not permitted")
    yield room
    for _ in range(50):
        if subprocess.run(["umount", room], stderr=subprocess.DEVNULL).returncode == 0:
            break
        time.sleep(0.1)


def test_a_full_disk_leaves_nothing(tmp_path, full_disk, monkeypatch):
    def weights(data):
        return {"m.safetensors": {"w": ("U8", (len(data),), data)}}

    old = write_folder(tmp_path / "old", weights(bytes(1000)))
    new = write_folder(
        tmp_path / "new", weights(os.urandom(1000)) | {"noise": os.urandom(300_000), "zeros": bytes(300_000)}
    )
    with pytest.raises(OSError, match="No space left"):
        diff_checkpoints(old, new, full_disk / "d.rdl")
    assert names(full_disk) == []
    diff_checkpoints(old, new, tmp_path / "d.rdl")
    with pytest.raises(CheckpointError, match="bytes are free"):
        apply_checkpoint(old, tmp_path / "d.rdl", full_disk / "out")
    monkeypatch.setattr(
        "reprise.refit.checkpoints.checkpoint_apply._check_space", lambda *_: None
    )  # as if another writer came
    with pytest.raises(OSError, match="No space left"):
        apply_checkpoint(old, tmp_path / "d.rdl", full_disk / "out")
    assert names(full_disk) == []


NOT_REPLACED = {
    "a folder by a file": (make_file, "out", "a folder where a file shall be"),
    "a file by a folder": (make_folder, "file", "a file where a folder shall be"),
    "a pipe": (make_file, "pipe", "a device, pipe or socket"),
    "a socket": (make_file, "socket", "a device, pipe or socket"),
    "a checkpoint further down": (make_folder, "home", "without safetensors files at its top level"),
    "a repository": (make_folder, "clone", "a folder with a repository"),
    "where the user is": (make_folder, "work", "holds the working folder"),
    "above where the user is": (make_folder, "above", "holds the working folder"),
}


@pytest.mark.parametrize("make, name, why", NOT_REPLACED.values(), ids=NOT_REPLACED)
def test_force_does_not_replace_everything(tmp_path, monkeypatch, make, name, why):
    (tmp_path / "file").write_bytes(b"kept")
    os.mkfifo(tmp_path / "pipe")
    write_folder(tmp_path / "home", {"thesis.txt": b"years"} | {f"models/{path}": WEIGHTS[path] for path in WEIGHTS})
    write_folder(tmp_path / "clone", WEIGHTS | {".git/HEAD": b"ref: refs/heads/main"})
    for folder in ("out", "work", "above", "above/sub"):
        write_folder(tmp_path / folder, WEIGHTS)
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
        bound.bind("socket")
    monkeypatch.chdir({"work": "work", "above": "above/sub"}.get(name, "."))
    before, files = contents(tmp_path), names(tmp_path)
    with pytest.raises(CheckpointError, match=f"{why}.* is not replaced even by --force"):
        make(tmp_path / name, force=True)
    assert contents(tmp_path) == before and names(tmp_path) == files


def test_what_came_meanwhile_is_judged_too(tmp_path):
    with (
        pytest.raises(CheckpointError, match="a folder where a file shall be"),
        staged(tmp_path / "x", [], True) as path,
    ):
        path.write_bytes(b"new")
        write_folder(tmp_path / "x", WEIGHTS)
    assert set(contents(tmp_path)) == {"x/m.safetensors"}


def test_an_empty_output_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="path of the output is empty"):
        make_file("", force=True)


def test_the_system_s_errors_name_the_output_as_the_user_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as refused, staged("out", []):
        pass  # nothing was created
    assert (refused.value.filename, refused.value.filename2) == ("out", None)
    with pytest.raises(FileNotFoundError) as refused, staged("out", []):
        open(tmp_path / "input", "rb")
    assert refused.value.filename == str(tmp_path / "input")
