"""Safetensors headers and folders: what is read, and what is refused by name."""

import json
import os

import numpy as np
import pytest
from checkpoints import safetensors_bytes, small_pair, write_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save, save_file

from reprise.refit.checkpoints import safetensors_file
from reprise.refit.checkpoints.checkpoint import Checkpoint, check_path, unsharded
from reprise.refit.checkpoints.safetensors_file import CheckpointError, Entry, SafetensorsFile, parse_header, segments

DTYPES = [np.bool_, np.uint8, np.int8, np.uint16, np.float16, np.int32, np.float32, np.int64, np.float64, np.complex64]


def test_header_of_a_file_written_by_hand():
    text = b'{"b":{"dtype":"BF16","shape":[2],"data_offsets":[1,5]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}'
    entries = parse_header(len(text).to_bytes(8, "little") + text, 5, "x")
    assert entries == (Entry("a", "U8", (), 0, 1), Entry("b", "BF16", (2,), 1, 5))
    assert [entry.word_bytes for entry in entries] == [1, 2]


tensors = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8).filter(
        lambda name: name != "__metadata__"
    ),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(tensors, st.one_of(st.none(), st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)))
def test_entries_and_words_are_those_of_the_safetensors_library(tmp_path_factory, tensors, metadata):
    path = tmp_path_factory.mktemp("st") / "x.safetensors"
    save_file(tensors, path, metadata=metadata)
    file = SafetensorsFile.open(path)
    assert {e.name: (e.shape, file.map(e).tobytes()) for e in file.entries} == {
        name: (array.shape, array.tobytes()) for name, array in tensors.items()
    }
    assert all((file.map(e) == file.read(e)).all() for e in file.entries)
    assert file.prefix + b"".join(file.read(e).tobytes() for e in file.entries) == path.read_bytes()


@pytest.mark.parametrize("padding", range(8))
def test_an_unaligned_file_is_read_too(tmp_path, padding):
    data = np.arange(5, dtype="<f8").tobytes()
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes({"a": ("F64", (5,), data)}, padding=padding))
    file = SafetensorsFile.open(path)
    words = file.map(file.entries[0])
    assert words.flags.aligned and words.tobytes() == file.read(file.entries[0]).tobytes() == data


def _header(**fields):
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | fields}


BAD_HEADERS = {
    "gap": (_header(data_offsets=[4, 12]), 12),
    "negative": (_header(data_offsets=[-8, 0]), 0),
    "too short": (_header(data_offsets=[0, 4]), 4),
    "backwards": (_header(data_offsets=[8, 0]), 8),
    "beyond the data": (_header(), 4),
    "data left over": (_header(), 12),
    "overlap": (_header() | {"b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12),
    "same bytes twice": (_header() | {"b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 8),
    "dtype": (_header(dtype="F99"), 8),
    "dtype not text": (_header(dtype=3), 8),
    "shape of floats": (_header(shape=[2.0]), 8),
    "shape of truth values": (_header(shape=[True], data_offsets=[0, 4]), 4),
    "shape not a list": (_header(shape=2), 8),
    "huge shape": (_header(shape=[1 << 62, 1 << 62]), 8),
    "three offsets": (_header(data_offsets=[0, 8, 8]), 8),
    "half a nibble": (_header(dtype="F4", shape=[1], data_offsets=[0, 1]), 1),
    "no dtype": ({"a": {"shape": [], "data_offsets": [0, 0]}}, 0),
    "unknown field": ({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0], "x": 1}}, 0),
    "metadata not text": ({"__metadata__": {"a": 1}}, 0),
    "a list": ([], 0),
    "text": ("a", 0),
}


@pytest.mark.parametrize("header, nbytes", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_bad_header_is_refused_here_and_by_the_library(header, nbytes):
    text = json.dumps(header).encode()
    prefix = len(text).to_bytes(8, "little") + text
    with pytest.raises(CheckpointError, match="^here: "):
        parse_header(prefix, nbytes, "here")
    if header != BAD_HEADERS["unknown field"][0]:  # the library ignores it
        with pytest.raises(SafetensorError):
            deserialize(prefix + bytes(nbytes))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"a":{"dtype":"U8","shape":[' + b"1," * 64 + b'1],"data_offsets":[0,1]}}',
        b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,0]}}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
        b"{",
    ],
    ids=["repeated name", "half a surrogate", "65 dimensions", "5000 digits", "deep", "not UTF-8", "empty", "cut"],
)
def test_a_hostile_header_is_refused(text):
    with pytest.raises(CheckpointError, match="^here: "):
        parse_header(len(text).to_bytes(8, "little") + text, 1, "here")


def test_every_truncation_of_a_file_is_refused(tmp_path):
    whole, path = save({"a": np.arange(4, dtype=np.int16), "b": np.float32([1])}), tmp_path / "x.safetensors"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"x\.safetensors: "):
            SafetensorsFile.open(path)


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(save({"a": np.arange(100, dtype=np.int64)}))
    file = SafetensorsFile.open(path)
    file.check_unchanged()
    os.truncate(path, 200)
    for read in (file.map, file.read, lambda entry: file.check_unchanged()):
        with pytest.raises(CheckpointError, match="changed while it was read"):
            read(file.entries[0])


@pytest.mark.parametrize(
    "nbytes, sizes", [(0, []), (8, [8]), (16, [16]), (24, [16, 8]), (32, [16, 16]), (40, [16, 16, 8])]
)
def test_segments_cover_a_tensor_in_order(monkeypatch, nbytes, sizes):
    monkeypatch.setattr(safetensors_file, "SEGMENT_BYTES", 16)
    parts = segments(Entry("a", "F64", (1, nbytes // 8), 100, 100 + nbytes))
    assert [part.nbytes for part in parts] == sizes
    assert [part.begin for part in parts] == [100 + 16 * k for k in range(len(sizes))]
    assert all(part.shape == (part.nbytes // 8,) and part.name == "a" and part.dtype == "F64" for part in parts)


def test_packed_elements_are_coded_as_bytes():
    assert segments(Entry("a", "F4", (3, 4), 0, 6)) == [Entry("a", "U8", (6,), 0, 6)]
    assert segments(Entry("a", "F6_E2M3", (4,), 0, 3)) == [Entry("a", "U8", (3,), 0, 3)]


@pytest.mark.parametrize(
    "path", ["a", "a/b.safetensors", ".hidden", "ä/ß", "a b", "10:30.log", "...", "/".join("a" * 32), "x" * 255]
)
def test_plain_paths_are_accepted(path):
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "..\\a", "a\0", "a\nb", "\x1b[31m"]
    + ["\ud800", "x" * 256, "ä" * 128, "/".join("a" * 33), "/".join(["x" * 200] * 21)],
)
def test_other_paths_are_refused(path):
    with pytest.raises(CheckpointError, match="^file name "):
        check_path(path)


def test_a_folder_is_read_with_all_its_files(tmp_path):
    _, new = small_pair(tmp_path)
    checkpoint = Checkpoint.open(new)
    assert list(checkpoint.weights) == [f"model-0000{k}-of-00003.safetensors" for k in (1, 2, 3)]
    assert list(checkpoint.others) == [
        *("config.json", "extra/empty", "model.safetensors.index.json", "note.txt", "sub/tokenizer.txt")
    ]
    assert checkpoint.is_folder and checkpoint.nbytes == sum(p.stat().st_size for p in new.rglob("*") if p.is_file())
    single = Checkpoint.open(new / "model-00001-of-00003.safetensors")
    assert not single.is_folder and list(single.weights) == ["model-00001-of-00003.safetensors"] and not single.others


def test_links_are_followed_as_in_a_download_cache(tmp_path):
    old, _ = small_pair(tmp_path)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in old.iterdir():
        (snapshot / path.name).symlink_to(path)
    linked, direct = Checkpoint.open(snapshot), Checkpoint.open(old)
    assert list(linked.weights) == list(direct.weights) and list(linked.others) == list(direct.others)


def _loop(folder):
    (folder / "sub" / "up").symlink_to(folder, target_is_directory=True)


def _edit_index(change):
    def edit(folder):
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        change(index["weight_map"])
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return edit


BROKEN = {
    "missing shard": (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), "says that 'model-00002-of"),
    "tensor not in its shard": (_edit_index(lambda m: m.update({"x": "model-00001-of-00002.safetensors"})), "'x'"),
    "shard elsewhere": (_edit_index(lambda m: m.update({"x": "../x"})), "'../x'"),
    "index without map": (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "weight_map"),
    "index not JSON": (lambda f: (f / "model.safetensors.index.json").write_text("]"), "weight_map"),
    "index of numbers": (_edit_index(lambda m: m.update({"x": 3})), "weight_map"),
    "broken link": (lambda f: (f / "a").symlink_to("nowhere"), "neither a file nor a folder"),
    "pipe": (lambda f: os.mkfifo(f / "a"), "neither a file nor a folder"),
    "circular link": (_loop, "leads back"),
    "bad name": (lambda f: (f / "a\\b").write_bytes(b""), "file name"),
    "large-file pointer": (
        lambda f: (f / "x.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
        ),
        "not a safetensors file",
    ),
}


@pytest.mark.parametrize("damage, message", BROKEN.values(), ids=BROKEN)
def test_a_broken_folder_is_refused_with_the_reason(tmp_path, damage, message):
    old, _ = small_pair(tmp_path)
    Checkpoint.open(old)
    damage(old)
    with pytest.raises(CheckpointError) as refused:
        Checkpoint.open(old)
    assert message in str(refused.value)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no .safetensors file"):
        Checkpoint.open(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="no such file or folder"):
        Checkpoint.open(tmp_path / "absent")


@pytest.mark.parametrize(
    "path, name",
    [
        ("model.safetensors", "model.safetensors"),
        ("a/model-00001-of-00002.safetensors", "a/model.safetensors"),
        ("model.fp16-00001-of-00002.safetensors", "model.fp16.safetensors"),
        ("model-00001-of-00002.bin", "model-00001-of-00002.bin"),
    ],
)
def test_shard_numbers_are_left_out(path, name):
    assert unsharded(path) == name


def test_a_tensor_is_found_by_folder_then_file_then_name(tmp_path):
    tensor = {"w": ("U8", (1,), b"0")}
    held = ["a/model.safetensors", "a/model.fp16.safetensors", "b/x.safetensors", "c/x.safetensors", "c/y.safetensors"]
    checkpoint = Checkpoint.open(write_folder(tmp_path, dict.fromkeys(held, tensor)))
    wanted = {
        "a/model.safetensors": "a/model.safetensors",
        "a/model.fp16-00001-of-00009.safetensors": "a/model.fp16.safetensors",
        "a/other.safetensors": None,  # two could be meant
        "b/anything.safetensors": "b/x.safetensors",
        "c/z.safetensors": None,
        "model.safetensors": None,  # in no other folder
    }
    found = {path: checkpoint.find(path, "w") for path in wanted}
    assert {path: tensor and tensor.path for path, tensor in found.items()} == wanted
    assert checkpoint.find("b/x.safetensors", "v") is None


def test_what_cannot_be_meant_as_a_checkpoint_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opened, it would wait for a writer
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(CheckpointError, match="is not a regular file or folder"):
            Checkpoint.open(path)
    with pytest.raises(CheckpointError, match="path is empty"):
        Checkpoint.open("")
    weights = {"m.safetensors": {"w": ("U8", (1,), b"a")}}
    snapshot = write_folder(tmp_path / "models--a--b" / "snapshots" / "0a1b", weights)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    with pytest.raises(CheckpointError, match="expected a folder below its snapshots"):
        Checkpoint.open(tmp_path / "models--a--b")
    assert list(Checkpoint.open(snapshot).weights) == ["m.safetensors"]


def test_a_text_file_that_changes_is_noticed(tmp_path):
    old, _ = small_pair(tmp_path)
    checkpoint = Checkpoint.open(old)
    os.utime(old / "note.txt", ns=(1, 1))
    checkpoint.check_unchanged(["config.json"])
    with pytest.raises(CheckpointError, match="note.txt: changed while it was read"):
        checkpoint.check_unchanged(checkpoint.others)
