"""Whole checkpoints: diff then apply gives NEW byte for byte; everything else leaves nothing behind."""

import contextlib
import json
import os
import random
import shutil
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xxhash
import zstandard
from checkpoints import bf16, contents, safetensors_bytes, small_pair, stepped, write_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.errors import RepriseError
from reprise.refit import PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.checkpoints import checkpoint_apply, safetensors_file
from reprise.refit.checkpoints.checkpoint_apply import apply_checkpoint
from reprise.refit.checkpoints.checkpoint_diff import DiffSummary, diff_checkpoints
from reprise.refit.checkpoints.checkpoint_stats import change_distance, checkpoint_stats, delta_info
from reprise.refit.checkpoints.container import END, PREAMBLE, DeltaFile
from reprise.refit.checkpoints.manifest import BASE, DELTA, OTHER, WEIGHTS, WHOLE, Block, FileRecord, Manifest
from reprise.refit.checkpoints.safetensors_file import CheckpointError
from reprise.refit.checkpoints.streams import pack
from reprise.refit.operations import OPERATIONS

ONE = {"w": ("U8", (3,), b"abc")}


def round_trip(old, new, **options):
    """Bytes of the delta after checking that applying it gives NEW."""
    delta, out = old.parent / "d.rdl", old.parent / "out"
    diff_checkpoints(old, new, delta, force=True, **options)
    apply_checkpoint(old, delta, out, force=True)
    assert contents(out) == contents(new) and out.is_dir() == new.is_dir()
    return delta.read_bytes()


def refused(old, delta, out, kind=RepriseError):
    """The message of a refused apply, after checking that it left nothing behind."""
    before = sorted(out.parent.iterdir())
    with pytest.raises(kind) as error:
        apply_checkpoint(old, delta, out)
    assert sorted(out.parent.iterdir()) == before
    return str(error.value)


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_folder_with_other_shards_and_files_comes_back(tmp_path, op):
    old, new = small_pair(tmp_path)
    delta = round_trip(old, new, op=op)
    assert round_trip(old, new, op=op) == delta  # same input, same bytes
    assert round_trip(old, new, op=op, level=19) != delta
    round_trip(new, old, op=op)
    round_trip(old, old, op=op)


def test_the_summary_counts_what_travels(tmp_path):
    old, new = small_pair(tmp_path)
    done = diff_checkpoints(old, new, tmp_path / "d.rdl")
    new_bytes, delta_bytes = sum(map(len, contents(new).values())), (tmp_path / "d.rdl").stat().st_size
    assert done == DiffSummary(7, ("fresh",), ("gone",), 5, new_bytes, delta_bytes)


@pytest.mark.parametrize(
    "options, name", [({"level": 0}, "level=0"), ({"level": 20}, "level=20"), ({"op": "mul"}, "op=")]
)
def test_a_bad_option_is_named(tmp_path, options, name):
    old, new = small_pair(tmp_path)
    with pytest.raises(RepriseError, match=f"^{name}"):
        diff_checkpoints(old, new, tmp_path / "d.rdl", **options)


def test_a_single_file_and_a_folder_turn_into_each_other(tmp_path):
    rng = np.random.default_rng(1)
    tensors = {f"w{k}": bf16(rng, 3, 5) for k in range(4)}
    changed = {name: stepped(rng, tensor) for name, tensor in tensors.items()}
    single, folder = tmp_path / "step1.safetensors", tmp_path / "step2"
    single.write_bytes(safetensors_bytes(tensors, {"format": "pt"}, padding=3))
    parts = {f"model-{k}-of-2.safetensors": dict(list(changed.items())[2 * k :][:2]) for k in range(2)}
    write_folder(folder, parts | {"README.md": b"# two"})
    round_trip(single, folder)
    shutil.rmtree(tmp_path / "out")
    round_trip(folder, single)
    diff_checkpoints(single, folder, tmp_path / "e.rdl")
    info = delta_info(tmp_path / "e.rdl")
    assert {tensor.kind for tensor in info.tensors} == {DELTA} and not info.removed


def test_empty_tied_and_packed_tensors_and_odd_names(tmp_path):
    tensors = {
        "": ("F32", (), b"\0\0\xc0\x7f"),
        "two\nlines \x1b[1m": ("F8_E4M3", (3,), b"\x7f\xff\0"),
        "none": ("I64", (0, 7), b""),
        "tie": ("F4", (4,), b"\x12\x34"),
        "tied": ("F4", (4,), b"\x12\x34"),
        "six": ("F6_E3M2", (2, 2), b"\1\2\3"),
        "complex": ("C64", (1,), bytes(range(8))),
    }
    old = write_folder(tmp_path / "old", {"m.safetensors": tensors})
    flipped = {n: (d, s, bytes(255 - byte for byte in data)) for n, (d, s, data) in tensors.items()}
    new = write_folder(tmp_path / "new", {"m.safetensors": flipped, "void.safetensors": {}})
    for op in OPERATIONS:
        round_trip(old, new, op=op)


def test_tensors_longer_than_a_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_file, "SEGMENT_BYTES", 64)
    rng = np.random.default_rng(2)
    tensors = {"a": bf16(rng, 7, 33), "b": bf16(rng, 32), "c": bf16(rng, 33)}
    old = write_folder(tmp_path / "old", {"m.safetensors": tensors})
    new = write_folder(tmp_path / "new", {"m.safetensors": {n: stepped(rng, t) for n, t in tensors.items()}})
    round_trip(old, new)
    with DeltaFile(tmp_path / "d.rdl") as delta:
        (record,) = delta.manifest.files
        assert [len(block.sizes) for block in record.blocks] == [1, 8, 1, 2]


words = st.sampled_from([("U8", 1), ("BF16", 2), ("F32", 4), ("I64", 8)])


@st.composite
def checkpoints(draw):
    """Two random checkpoints over one small set of names, dtypes and shapes."""
    schema = {}
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)):
        (dtype, width), shape = draw(words), draw(st.lists(st.integers(0, 5), max_size=3))
        schema[name] = dtype, shape, width * int(np.prod(shape, dtype=int))
    return [draw(_checkpoint(schema)) for _ in range(2)]


@st.composite
def _checkpoint(draw, schema):
    names = draw(st.lists(st.sampled_from(sorted(schema)), unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    tensors = {n: (*schema[n][:2], rng.integers(0, 3, schema[n][2], "u1").tobytes()) for n in names}
    if draw(st.booleans()):
        return safetensors_bytes(tensors)
    files = draw(st.dictionaries(st.sampled_from(["a.json", "b/c", "b/d.txt"]), st.binary(max_size=9)))
    where = [draw(st.integers(1, 3)) for _ in names]
    shards = {
        f"m-{k}-of-3.safetensors": {n: tensors[n] for n, w in zip(names, where, strict=True) if w == k}
        for k in (1, 2, 3)
    }
    return {path: part for path, part in shards.items() if part or path[2] == "1"} | files


@settings(max_examples=60, deadline=None)
@given(checkpoints(), st.sampled_from(OPERATIONS))
def test_diff_then_apply_is_the_identity(tmp_path_factory, pair, op):
    room = tmp_path_factory.mktemp("pair")
    for name, content in zip(("old", "new"), pair, strict=True):
        if isinstance(content, bytes):
            (room / name).write_bytes(content)
        else:
            write_folder(room / name, content)
    round_trip(room / "old", room / "new", op=op)
    shutil.rmtree(room)


@pytest.mark.parametrize(
    "other, sentence",
    [
        (("U8", (4,), b"abcd"), "tensor 'w': U8 [3] in OLD, U8 [4] in NEW: expected the same dtype and shape"),
        (("I8", (3,), b"abc"), "tensor 'w': U8 [3] in OLD, I8 [3] in NEW: expected the same dtype and shape"),
        (("U8", (3, 1), b"abc"), "tensor 'w': U8 [3] in OLD, U8 [3, 1] in NEW: expected the same dtype and shape"),
    ],
)
def test_a_changed_dtype_or_shape_is_refused_by_name(tmp_path, other, sentence):
    old = write_folder(tmp_path / "old", {"m.safetensors": ONE})
    new = write_folder(tmp_path / "new", {"m.safetensors": {"w": other}})
    with pytest.raises(RefitSchemaError) as error:
        diff_checkpoints(old, new, tmp_path / "d.rdl")
    assert str(error.value) == sentence and not (tmp_path / "d.rdl").exists()
    diff_checkpoints(old, old, tmp_path / "same.rdl")
    assert "tensor 'w': " in refused(new, tmp_path / "same.rdl", tmp_path / "out", RefitSchemaError)


def _only(name):
    def edit(folder):
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        write_folder(folder, {"model.safetensors": {name: ("BF16", (4, 6), bytes(48))}})

    return edit


def _flip_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


WRONG_BASES = {
    "other bits": (
        lambda f: _flip_last_bit(f / "model-00002-of-00002.safetensors"),
        StaleBaseError,
        "tensor 'layer.3.weight' of OLD holds other bits than the base of this delta",
    ),
    "other weights": (_only("layer.0.weight"), StaleBaseError, "tensor 'layer.0.weight' of OLD holds other bits"),
    "missing tensor": (_only("x"), RefitSchemaError, "'layer.0.weight' is missing in OLD and needed by this delta"),
    "other file": (
        lambda f: (f / "config.json").write_text('{"a": 2}'),
        StaleBaseError,
        "file 'config.json' of OLD holds other bytes than the base of this delta",
    ),
    "longer file": (
        lambda f: (f / "config.json").write_text('{"a": 1}\n'),
        StaleBaseError,
        "file 'config.json' of OLD",
    ),
    "missing file": (
        lambda f: (f / "config.json").unlink(),
        RefitSchemaError,
        "file 'config.json' is missing in OLD and needed by this delta",
    ),
}


@pytest.mark.parametrize("change, kind, sentence", WRONG_BASES.values(), ids=WRONG_BASES)
def test_a_wrong_base_is_refused_in_a_sentence(tmp_path, change, kind, sentence):
    old, new = small_pair(tmp_path)
    diff_checkpoints(old, new, tmp_path / "d.rdl")
    change(old)
    assert sentence in refused(old, tmp_path / "d.rdl", tmp_path / "out", kind)


def test_a_base_that_is_sharded_otherwise_will_do(tmp_path):
    old, new = small_pair(tmp_path)
    diff_checkpoints(old, new, tmp_path / "d.rdl")
    tensors = {}
    for path in sorted(old.glob("*.safetensors")):
        file = safetensors_file.SafetensorsFile.open(path)
        tensors |= {e.name: (e.dtype, e.shape, file.read(e).tobytes()) for e in file.entries}
        path.unlink()
    (old / "model.safetensors.index.json").unlink()
    write_folder(old, {"model.safetensors": dict(sorted(tensors.items()))})
    apply_checkpoint(old, tmp_path / "d.rdl", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(new)


@pytest.fixture
def tiny(tmp_path):
    """(OLD, bytes of a small delta): a changed tensor, an added one, another file."""
    tensors = {"w": ("BF16", (4,), bytes(8)), "v": ("U8", (2,), b"ab")}
    old = write_folder(tmp_path / "old", {"m.safetensors": {"w": tensors["w"]}})
    changed = tensors | {"w": ("BF16", (4,), bytes([0, 0, 1, 0] * 2))}
    new = write_folder(tmp_path / "new", {"m.safetensors": changed, "t": b"text"})
    return old, round_trip(old, new)


def test_every_truncation_is_refused(tiny, tmp_path):
    old, data = tiny
    delta = tmp_path / "cut.rdl"
    for end in range(len(data)):
        delta.write_bytes(data[:end])
        refused(old, delta, tmp_path / "none", PayloadError)
    delta.write_bytes(data + b"\0")
    refused(old, delta, tmp_path / "none", PayloadError)


def test_random_bit_flips_are_refused(tiny, tmp_path):
    old, data = tiny
    delta, rng = tmp_path / "flipped.rdl", random.Random(0)
    for bit in rng.sample(range(8 * len(data)), 500):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        delta.write_bytes(flipped)
        refused(old, delta, tmp_path / "none", PayloadError)


def test_a_later_version_is_named(tiny, tmp_path):
    old, data = tiny
    (tmp_path / "later.rdl").write_bytes(data[:8] + b"\2" + data[9:])
    assert "format version 2" in refused(old, tmp_path / "later.rdl", tmp_path / "none", PayloadError)


def sealed(blocks, manifest):
    """A container with right digests, whatever it says."""
    body = PREAMBLE + blocks + manifest + len(manifest).to_bytes(8, "little")
    return body + xxhash.xxh3_128_digest(body) + END


def reopened(data):
    """(bytes of the blocks, fields of the manifest) of a container."""
    count = int.from_bytes(data[-32:-24], "little")
    return data[len(PREAMBLE) : -32 - count], json.loads(data[-32 - count : -32])


def test_the_layout_is_the_documented_one(tiny):
    _, data = tiny
    assert data[:16] == bytes.fromhex("89 52 44 43 0d 0a 1a 0a 01 00 00 00 00 00 00 00") and data[-8:] == b"RDC end\n"
    blocks, fields = reopened(data)
    assert sealed(blocks, json.dumps(fields, separators=(",", ":")).encode()) == data
    assert list(fields) == ["folder", "op", "files", "removed"] and fields["op"] == "add"
    assert [(row[0], row[1]) for row in fields["files"]] == [("weights", "m.safetensors"), ("other", "t")]
    prefix = fields["files"][0][5][0][1]
    text = zstandard.decompress(blocks[:prefix])
    assert list(json.loads(text[8:])) == ["w", "v"]


def _set(*path):
    *keys, value = path

    def edit(fields):
        for key in keys[:-1]:
            fields = fields[key]
        fields[keys[-1]] = value

    return edit


def _merge(rows):
    rows[1:] = [["whole", sum(row[1] for row in rows[1:])]]


HOSTILE = {
    "climbs out": _set("files", 1, 1, "../t"),
    "absolute": _set("files", 1, 1, "/tmp/t"),
    "backslash": _set("files", 1, 1, "..\\t"),
    "empty name": _set("files", 1, 1, ""),
    "name too long": _set("files", 1, 1, "t" * 256),
    "half a surrogate": _set("files", 1, 1, "\ud800"),
    "name twice": _set("files", 1, 1, "m.safetensors"),
    "file as folder": _set("files", 1, 1, "m.safetensors/t"),
    "name a number": _set("files", 1, 1, 5),
    "unknown kind": _set("files", 1, 0, "link"),
    "another kind": _set("files", 1, 0, "weights"),
    "base with a block": _set("files", 1, 0, "base"),
    "size negative": _set("files", 1, 2, -1),
    "size a truth value": _set("files", 1, 2, True),
    "size absurd": _set("files", 1, 2, 1 << 70),
    "size of a full disk": _set("files", 1, 2, 1 << 59),
    "size too large": _set("files", 1, 2, 5),
    "size too small": _set("files", 1, 2, 3),
    "size of weights": _set("files", 0, 2, 5),
    "no digest": _set("files", 1, 3, ""),
    "another digest": _set("files", 1, 3, "0" * 32),
    "another digest of weights": _set("files", 0, 3, "0" * 32),
    "prefix absurd": _set("files", 0, 4, 1 << 40),
    "prefix too small": _set("files", 0, 4, 8),
    "prefix too large": _set("files", 0, 4, 1000),
    "prefix of nothing": _set("files", 0, 4, 0),
    "block too short": _set("files", 1, 5, 0, 1, 1),
    "block too long": _set("files", 1, 5, 0, 1, 100_000),
    "block negative": _set("files", 1, 5, 0, 1, -4),
    "two streams": _set("files", 1, 5, 0, ["whole", 1, 2]),
    "blocks missing": _set("files", 1, 5, []),
    "blocks no list": _set("files", 1, 5, 7),
    "block no list": _set("files", 1, 5, 0, "whole"),
    "block of another kind": _set("files", 0, 5, 1, 0, "whole"),
    "frame of no kind": _set("files", 0, 5, 2, 0, "delta"),
    "tensors merged": lambda fields: _merge(fields["files"][0][5]),
    "frame too many": lambda fields: fields["files"][0][5][1].append(0),
    "tensor left out": lambda fields: fields["files"][0][5].pop(),
    "file left out": lambda fields: fields["files"].pop(),
    "no files": _set("files", []),
    "files no list": _set("files", {}),
    "file no list": _set("files", 1, None),
    "single file": _set("folder", False),
    "folder a number": _set("folder", 1),
    "unknown operation": _set("op", "mul"),
    "operation a list": _set("op", []),
    "removed numbers": _set("removed", [1]),
    "unknown field": _set("more", 1),
}


@pytest.mark.parametrize("edit", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_with_right_digests_is_refused(tiny, tmp_path, edit):
    old, data = tiny
    blocks, fields = reopened(data)
    edit(fields)
    room = tmp_path / "room" / "room"
    room.mkdir(parents=True)
    (room / "d.rdl").write_bytes(sealed(blocks, json.dumps(fields).encode()))
    refused(old, room / "d.rdl", room / "out")
    assert os.listdir(room.parent) == ["room"]


@pytest.mark.parametrize("manifest", [b"", b"[" * 100_000, b"\xff", b"[]", b"null", b'{"folder":true}'])
def test_a_manifest_that_is_none_is_refused(tiny, tmp_path, manifest):
    old, data = tiny
    (tmp_path / "m.rdl").write_bytes(sealed(reopened(data)[0], manifest))
    refused(old, tmp_path / "m.rdl", tmp_path / "none", PayloadError)


def _crafted(record, blocks, **fields):
    return sealed(
        blocks, Manifest(**({"folder": True, "op": "add", "files": (record,), "removed": ()} | fields)).dump()
    )


def test_frames_of_other_tensors_are_refused(tiny, tmp_path):
    old, data = tiny
    blocks, fields = reopened(data)
    text = safetensors_bytes({"x": ("BF16", (4,), bytes(8))})[:-8]
    whole = b"".join(pack([text], len(text), 1))
    row = fields["files"][0][5]
    frame = blocks[row[0][1] :][: row[1][1]]
    record = FileRecord(
        WEIGHTS,
        "m.safetensors",
        len(text) + 8,
        "0" * 32,
        (Block(WHOLE, (len(whole),)), Block(DELTA, (len(frame),))),
        len(text),
    )
    (tmp_path / "x.rdl").write_bytes(_crafted(record, whole + frame))
    renamed = write_folder(tmp_path / "renamed", {"m.safetensors": {"x": ("BF16", (4,), bytes(8))}})
    assert "frame describes another tensor" in refused(renamed, tmp_path / "x.rdl", tmp_path / "none", PayloadError)
    assert "'x' is missing in OLD" in refused(old, tmp_path / "x.rdl", tmp_path / "none")


@pytest.mark.parametrize("declared", [4, 1 << 28])
def test_a_block_that_expands_beyond_its_declared_size_is_refused_in_bounded_memory(tiny, tmp_path, declared):
    old, _ = tiny
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28 if declared == 4 else (1 << 28) + 1))
    assert len(bomb) < 32_768
    record = FileRecord(OTHER, "t", declared, "0" * 32, (Block(WHOLE, (len(bomb),)),))
    (tmp_path / "bomb.rdl").write_bytes(_crafted(record, bomb))
    tracemalloc.start()
    message = refused(old, tmp_path / "bomb.rdl", tmp_path / "none", PayloadError)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than its declared" in message and peak < 32 << 20


def test_a_window_that_takes_gigabytes_is_refused(tiny, tmp_path):
    old, _ = tiny
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(bytes(9)) + compressor.flush()
    record = FileRecord(OTHER, "t", 9, xxhash.xxh3_128_hexdigest(bytes(9)), (Block(WHOLE, (len(data),)),))
    (tmp_path / "w.rdl").write_bytes(_crafted(record, data))
    assert "damaged block" in refused(old, tmp_path / "w.rdl", tmp_path / "none", PayloadError)


def test_more_than_the_disk_holds_is_refused_before_anything_is_written(tiny, tmp_path, monkeypatch):
    old, data = tiny
    (tmp_path / "d.rdl").write_bytes(data)
    monkeypatch.setattr(checkpoint_apply.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 0, 10))
    assert "10 bytes are free" in refused(old, tmp_path / "d.rdl", tmp_path / "none", CheckpointError)


def test_a_delta_without_weights_or_of_base_files_only(tmp_path):
    old = write_folder(tmp_path / "old", {"m.safetensors": ONE, "a": b"1"})
    record = FileRecord(BASE, "a", 1, xxhash.xxh3_128_hexdigest(b"1"))
    (tmp_path / "d.rdl").write_bytes(_crafted(record, b""))
    apply_checkpoint(old, tmp_path / "d.rdl", tmp_path / "out")
    assert contents(tmp_path / "out") == {"a": b"1"}
    (tmp_path / "d.rdl").write_bytes(_crafted(replace(record, path="m.safetensors"), b""))
    assert "file 'm.safetensors' is missing" in refused(old, tmp_path / "d.rdl", tmp_path / "none")


def test_a_checkpoint_written_while_it_is_compared_is_noticed(tmp_path):
    old, new = small_pair(tmp_path)
    shard = next(new.glob("*.safetensors"))

    def touched(label, nbytes):
        shard.write_bytes(shard.read_bytes()[:-1] + b"x")
        os.utime(shard, ns=(0, 0))
        return checkpoint_apply.silent(label, nbytes)

    with pytest.raises(CheckpointError, match="changed while it was read"):
        diff_checkpoints(old, new, tmp_path / "d.rdl", progress=touched)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_what_a_delta_holds(tmp_path):
    old, new = small_pair(tmp_path)
    diff_checkpoints(old, new, tmp_path / "d.rdl", op="xor")
    info, stats = delta_info(tmp_path / "d.rdl"), checkpoint_stats(old, new)
    assert (info.op, info.folder, info.removed) == ("xor", True, ("gone",))
    assert info.new_bytes == sum(map(len, contents(new).values()))
    assert Counter(t.kind for t in info.tensors) == {DELTA: 5, WHOLE: 2}  # added and empty tensors travel whole
    assert [path for path, nbytes in info.other_files.items() if nbytes == 0] == ["config.json", "sub/tokenizer.txt"]
    counted = {t.name: t.changed for t in stats.tensors if t.elements}
    assert counted == {t.name: t.changed for t in info.tensors if t.kind == DELTA}


def test_stats_count_changes_by_hand(tmp_path):
    old = write_folder(tmp_path / "old", {"m.safetensors": {"w": ("U16", (8,), bytes(16)), "x": ("U8", (1,), b"a")}})
    words = np.array([0, 1, 0, 2, 0, 300, 0, 65535], "<u2").tobytes()
    new = write_folder(tmp_path / "new", {"m.safetensors": {"w": ("U16", (8,), words), "y": ("U8", (1,), b"a")}})
    stats = checkpoint_stats(old, new)
    (tensor,) = stats.tensors
    assert (tensor.elements, tensor.changed, stats.added, stats.removed, stats.tensor_bytes) == (
        8,
        4,
        ("y",),
        ("x",),
        17,
    )
    assert dict(enumerate(tensor.distance)) == dict.fromkeys(range(65), 0) | {1: 1, 2: 1, 9: 1, 16: 1}
    # half of 8 elements changed: 1 bit an element to place them; four different words: 2 bits each
    assert tensor.bound_bits == pytest.approx({op: 8 + 4 * 2 for op in OPERATIONS})


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20))
def test_distance_is_the_bit_length_of_the_difference(pairs):
    old, new = (np.array([pair[side] for pair in pairs], np.uint64) for side in (0, 1))
    expected = Counter(abs(a - b).bit_length() for a, b in pairs if a != b)
    assert {k: n for k, n in enumerate(change_distance(old, new).tolist()) if n} == expected


def _large_pair(folder, count, elements):
    rng, tensors = np.random.default_rng(0), {}
    for k in range(count):
        tensors[f"w{k}"] = "BF16", (elements,), rng.integers(0, 1 << 16, elements, "u2").tobytes()
    write_folder(folder / "old", {"m.safetensors": tensors})
    for name, (dtype, shape, data) in tensors.items():
        tensors[name] = stepped(rng, (dtype, shape, data), share=0.03)
    tensors["fresh"] = tensors["w0"]
    write_folder(folder / "new", {"m.safetensors": tensors})


@pytest.mark.slow
def test_memory_stays_below_one_tensor(tmp_path):
    nbytes = 64 << 20
    _large_pair(tmp_path, 3, nbytes // 2)
    steps = {
        "diff": lambda: diff_checkpoints(tmp_path / "old", tmp_path / "new", tmp_path / "d.rdl", force=True),
        "apply": lambda: apply_checkpoint(tmp_path / "old", tmp_path / "d.rdl", tmp_path / "out", force=True),
        "inspect": lambda: delta_info(tmp_path / "d.rdl"),
    }
    peaks = {}
    for name, step in steps.items():
        step()  # imports and compiles what it takes, once
        tracemalloc.start()
        step()
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert max(peaks.values()) < nbytes, peaks  # both sides stay on their mapped pages
    for path, data in contents(tmp_path / "out").items():
        assert data == Path(tmp_path, "new", path).read_bytes()


def _truncate(folder):
    os.truncate(folder / "m.safetensors", 200)


def _touch(folder):
    os.utime(folder / "m.safetensors", ns=(1, 1))


def _edit(folder):
    (folder / "note.txt").write_bytes(b"later")


def _when_started(change):
    @contextlib.contextmanager
    def progress(label, nbytes):
        change()
        yield lambda done: None

    return progress


@pytest.fixture
def changing(tmp_path):
    """OLD and NEW, whose tensor is `name`, each with a text; `change` happens to one side when reading begins."""

    def run(command, side, change, name="w"):
        for folder, tensor, byte in (("old", "w", b"0"), ("new", name, b"1")):
            weights = {tensor: ("U8", (1 << 16,), byte * (1 << 16))}
            write_folder(tmp_path / folder, {"m.safetensors": weights, "note.txt": b"text"})
        with pytest.raises(CheckpointError, match="changed while it was read"):
            command(tmp_path / "old", tmp_path / "new", progress=_when_started(lambda: change(tmp_path / side)))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]

    return run


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("name", ["w", "added"])
@pytest.mark.parametrize("change", [_truncate, _touch, _edit])
def test_a_diff_of_what_changes_meanwhile_is_refused(changing, tmp_path, side, name, change):
    changing(partial(diff_checkpoints, out=tmp_path / "d.rdl"), side, change, name)


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("change", [_truncate, _touch])
def test_statistics_of_what_changes_meanwhile_are_refused(changing, side, change):
    changing(checkpoint_stats, side, change)


def test_a_pipe_is_no_delta(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PayloadError, match="is not a regular file"):
        DeltaFile(tmp_path / "pipe")
    with pytest.raises(PayloadError, match="path of the delta is empty"):
        DeltaFile("")
