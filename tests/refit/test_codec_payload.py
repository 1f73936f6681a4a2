"""What a payload carries, and that nothing damaged, forged or too large is accepted or touches a target."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from codec import NEW, OLD, bits, forged, perturbed, signed

from reprise.errors import RepriseError
from reprise.refit import (
    OPERATIONS,
    Limits,
    PayloadError,
    RefitSchemaError,
    TensorDelta,
    apply_,
    decode,
    diff_bits,
    encode,
    encode_pair,
    read_header,
)
from reprise.refit.header import STREAMS, Header, Record
from reprise.refit.locations import gap_bytes, rice_encode

SMALL = bits(perturbed(2000, 0.05)[0]), bits(perturbed(2000, 0.05)[1])
FRAME = encode(diff_bits(*SMALL), "add")


def refused(frame: bytes) -> bool:
    """Whether a receiver of SMALL's old bits refuses `frame` and keeps them."""
    target = bits(SMALL[0].words.copy())
    try:
        apply_(target, decode(frame))
    except PayloadError:
        return bool((target.words == SMALL[0].words).all())
    return False


def test_identifiers_names_and_shapes_travel():
    old = {"a.weight": OLD.reshape(2, 4), "b": np.zeros((3, 1, 5), np.int8)}
    new = {"a.weight": NEW.reshape(2, 4), "b": np.ones((3, 1, 5), np.int8)}
    who = dict(base_version=7, target_version=8, transfer_id="tr-é", attempt=2, producer="rank 3", payload_id=2**40)
    delta = diff_bits(old, new, **who)
    assert encode(delta, "xor") == encode_pair(old, new, "xor", **who)
    again = decode(encode(delta, "xor"))
    assert {name: getattr(again, name) for name in who} == who
    assert [(t.name, t.dtype, t.shape, t.op) for t in again.tensors] == [
        ("a.weight", "U16", (2, 4), "xor"),
        ("b", "I8", (3, 1, 5), "xor"),
    ]
    assert [record.count for record in read_header(encode(delta)).records] == [4, 15]


def test_mixed_operations_keep_their_own():
    delta = diff_bits({"a": OLD, "b": OLD.copy()}, {"a": NEW, "b": NEW})
    mixed = replace(delta, tensors=(delta.tensors[0].with_op("xor"), delta.tensors[1]))
    again = decode(encode(mixed, op=None))
    assert [record.op for record in again.tensors] == ["xor", "overwrite"]
    target = apply_({"a": OLD.copy(), "b": OLD.copy()}, again)
    assert (target["a"] == NEW).all() and (target["b"] == NEW).all()


def test_another_operation_takes_the_old_words():
    decoded = decode(encode(diff_bits(bits(OLD), bits(NEW)), "xor"))
    with pytest.raises(PayloadError, match="op='add'.*decoded as 'xor'"):
        encode(decoded, "add")
    with pytest.raises(RepriseError, match="op='plus': expected one of xor"):
        encode_pair(bits(OLD), bits(NEW), "plus")


def test_every_truncation_is_refused():
    assert all(refused(FRAME[:size]) for size in range(len(FRAME)))
    assert refused(FRAME + b"\0")
    assert not refused(FRAME)


def test_a_thousand_bit_flips_are_refused():
    rng = np.random.default_rng(0)
    for position in rng.integers(0, 8 * len(FRAME), 1000).tolist():
        damaged = bytearray(FRAME)
        damaged[position // 8] ^= 1 << position % 8
        assert refused(bytes(damaged)), position


@pytest.mark.parametrize("op", OPERATIONS)
def test_forged_bytes_never_escape_as_another_error(op):
    """Any byte may be wrong under a valid digest: an error of ours or a correct result, and nothing written else."""
    rng = np.random.default_rng(1)
    frame = encode(diff_bits(*SMALL, chunk=64), op)
    for position in rng.integers(0, len(frame) - 8, 700).tolist():
        damaged = bytearray(frame)
        damaged[position] ^= int(rng.integers(1, 256))
        target = bits(SMALL[0].words.copy())
        try:
            apply_(target, decode(signed(bytes(damaged))))
        except (PayloadError, RefitSchemaError):
            assert (target.words == SMALL[0].words).all()
        else:
            assert (target.words == SMALL[1].words).all()  # a field that says nothing of the bits, such as the producer


def rle_bomb(content: int, declared: int) -> bytes:
    """A zstd frame of a zero byte repeated `content` times that declares another size."""
    blocks, size = b"", 1 << 17
    for left in range(content, 0, -size):
        blocks += ((left <= size) | 1 << 1 | min(left, size) << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\xe0" + declared.to_bytes(8, "little") + blocks


def header_of(records, **fields) -> Header:
    return Header(
        **dict(transfer_id="", attempt=0, producer="", payload_id=0, base_version=0, target_version=1),
        **fields,
        streams=(),
        records=records,
    )


@pytest.mark.parametrize(
    "raw, declared, why",
    [
        (1 << 28, 1 << 28, "raw_bytes: declares 268435.*limit is 134217728"),
        (1 << 16, 1 << 28, "gaps: does not declare 65536 bytes"),
        (1 << 16, 1 << 16, "gaps: .*"),
    ],
    ids=["honest", "honest to zstd only", "honest to neither"],
)
def test_a_bomb_is_refused_before_it_is_unpacked(raw, declared, why):
    frame = forged(header_of(()), {"gaps": raw}, {"gaps": rle_bomb(1 << 28, declared)})
    assert 8000 < len(frame) < 8700
    tracemalloc.start()
    with pytest.raises(PayloadError, match=why):
        decode(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("stream, byte", [("gaps", 0), ("unary", 255), ("unary", 0)])
def test_positions_are_counted_before_they_are_stored(stream, byte):
    # 16 MiB of zeros or ones within the limits would become 128 MiB or a gibibyte of int64
    size = 1 << 24
    stored = zstandard.ZstdCompressor().compress(bytes([byte]) * size)
    frame = forged(header_of(()), {stream: size}, {stream: stored})
    tracemalloc.start()
    with pytest.raises(PayloadError, match=f"{stream}: .* (the header declares 0|are left over)"):
        decode(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * size


def record_of(**fields) -> Record:
    usual = dict(name="w", aliases=(), dtype="U8", shape=(100,), op="overwrite", count=2, chunk=64)
    return Record(**(usual | dict(location="gaps", parameter=0, nibbles=False) | fields))


def streams_of(**changes) -> dict[str, bytes]:
    usual = {"old digests": bytes(16), "new digests": bytes(16), "gaps": b"\x05\x46", "plane 0": b"\1\2"}
    return usual | {name.replace("_", " "): data for name, data in changes.items()}


def test_the_forged_record_is_sound_but_for_what_the_tests_change():
    assert decode(forged(header_of((record_of(),)), {}, streams_of())).tensors[0].index.tolist() == [5, 76]


@pytest.mark.parametrize(
    "record, streams, why",
    [
        (dict(), dict(gaps=b"\x05"), "gaps: 1 entries, the header declares 2"),
        (dict(), dict(gaps=b"\x05\xff"), "gaps: 1 entries, the header declares 2"),
        (dict(), dict(gaps=b"\x05\x46\x01"), "gaps: 3 entries, the header declares 2"),
        (dict(), dict(gaps=b"\x05\x46\xff"), "gaps: 1 bytes are left over"),
        (dict(), dict(gaps=b"\x05\x60"), "index out of range"),
        (dict(), dict(plane_0=b"\1"), "plane 0: 1 bytes, expected more"),
        (dict(), dict(plane_0=b"\1\2\3"), "plane 0: 1 bytes are left over"),
        (dict(), dict(plane_1=b"\1"), "plane 1: 1 bytes are left over"),
        (dict(), dict(old_digests=bytes(8)), "old digests: 8 bytes, expected more"),
        (dict(), dict(new_digests=bytes(8)), "new digests: 8 bytes, expected more"),
        (dict(), dict(new_digests=bytes(24)), "new digests: 8 bytes are left over"),
        (dict(nibbles=True), dict(nibbles=b"\xf1"), "plane 0: 1 bytes are left over"),
        (dict(nibbles=True), dict(nibbles=b"\xff", plane_0=b"\1"), "plane 0: 1 bytes, expected more"),
        (dict(location="range", parameter=99), dict(gaps=b""), "range parameter 99, expected at most 98"),
        (dict(location="rice", parameter=31), dict(gaps=b""), "rice parameter 31"),
        (dict(location="rice", parameter=3), dict(gaps=b"", unary=b"\1"), "unary: 1 entries, the header declares 2"),
        (dict(location="rice", parameter=3), dict(gaps=b"", unary=b"\3"), "remainders: 0 bytes"),
        (dict(parameter=1), {}, "gaps parameter 1"),
        (dict(count=101), {}, "count out of range"),
        (dict(shape=(0,)), {}, "elements out of range"),
        (dict(shape=(1 << 40, 1 << 40)), {}, "elements out of range"),
        (dict(shape=(1,) * 65), {}, "dimensions out of range"),
        (dict(chunk=32), {}, "chunk out of range"),
        (dict(dtype="F4"), {}, "dtype='F4': expected one of BOOL"),
        (dict(aliases=("w",)), {}, "named twice"),
    ],
)
def test_inconsistent_payloads_are_refused(record, streams, why):
    with pytest.raises(PayloadError, match=why):
        decode(forged(header_of((record_of(**record),)), {}, streams_of(**streams)))


def test_wrapping_gaps_are_refused():
    # three gaps of 2^62 and more sum past 2^63: a negative, decreasing index
    unary, remainders = rice_encode(np.array([3 << 10, 1 << 10, 1 << 10]), 0)
    record = record_of(location="rice", parameter=30, count=3, shape=(1 << 41,), chunk=1 << 31)
    record = replace(record, shape=(1 << 40,))
    streams = streams_of(
        gaps=b"", unary=unary.tobytes(), remainders=bytes(12), plane_0=b"abc", old_digests=bytes(8 << 9)
    )
    with pytest.raises(PayloadError, match="index out of range"):
        decode(forged(header_of((record,)), {}, streams))


@pytest.mark.parametrize(
    "position, value, why",
    [
        (0, b"PK", "magic: "),
        (8, b"\2", "format: 2, expected 1"),
        (36, b"\1", "bytes, declares"),
        (32, b"\1", "header: "),
        (12, b"\7", "changes: prefix declares"),
    ],
)
def test_prefix_is_checked(position, value, why):
    damaged = FRAME[:position] + value + FRAME[position + len(value) :]
    with pytest.raises(PayloadError, match=why):
        decode(signed(damaged))


@pytest.mark.parametrize("field", ["frame_bytes", "header_bytes", "raw_bytes", "changes"])
def test_limits_are_named(field):
    with pytest.raises(PayloadError, match=f"{field}: declares .* limit is 50"):
        decode(FRAME, replace(Limits(), **{field: 50}))


def test_a_name_that_does_not_fit_is_refused():
    with pytest.raises(PayloadError, match="length of 'xxx"):
        encode_pair({"x" * 70000: OLD}, {"x" * 70000: NEW})
    with pytest.raises(PayloadError, match="attempt, payload id, versions"):
        encode_pair(OLD, NEW, base_version=-1)


@pytest.mark.parametrize("location", ["gaps", "rice", "range"])
def test_places_beyond_two_to_the_31(location):
    """Three 2^31-element chunks whose words are never allocated."""
    rng = np.random.default_rng(0)
    base = {"gaps": 2**31 - 30_000, "rice": 0, "range": 2**32 - 5}[location]
    gaps = {
        "gaps": rng.integers(0, 60, 3000),
        "rice": rng.integers(0, 1 << 20, 6000),
        "range": np.zeros(3000, np.int64),
    }
    index = base + np.cumsum(gaps[location] + 1)
    assert index[-1] > 2**31 and index.dtype == np.int64
    digests = np.arange(3, dtype=np.uint64)
    touched = np.isin(np.arange(3), index >> 31)
    words = rng.integers(1, 1 << 16, index.size).astype("<u2")
    record = TensorDelta(
        "big", "BF16", (3, 2**31), index, "xor", words, digests, np.where(touched, digests + 9, digests), 2**31
    )
    frame = encode(replace(diff_bits(OLD, OLD), tensors=(record,)), op=None)
    used = read_header(frame).records[0].location
    assert used == location
    (again,) = decode(frame).tensors
    assert (again.index == index).all() and again.index.dtype == np.int64
    assert (again.words == words).all() and (again.new_digests == record.new_digests).all()
    spelled = gap_bytes(index)
    assert spelled.size == (np.diff(index, prepend=-1) - 1).__floordiv__(255).sum() + index.size


def test_streams_of_several_widths_do_not_mix():
    rng = np.random.default_rng(2)
    old = {f"t{size}": rng.integers(0, 255, 500 * size, np.uint8).view(f"<u{size}") for size in (1, 2, 4, 8)}
    new = {name: words + (rng.random(words.size) < 0.3).astype(words.dtype) * 40 for name, words in old.items()}
    for op in OPERATIONS:
        frame = encode_pair(old, new, op)
        target = apply_({name: words.copy() for name, words in old.items()}, decode(frame))
        assert all((target[name] == new[name]).all() for name in new)
    assert set(STREAMS[-8:]) == {f"plane {k}" for k in range(8)}
