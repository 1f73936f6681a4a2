"""Changes coded by the old exponent: worked bytes, exactness, sizes against the entropy, and what is refused."""

import struct
from math import log2

import numpy as np
import pytest
from codec import NEW, OLD, bits, perturbed, signed
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reprise.refit import Bits, PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.exponents import bit_streams, exponent_classes
from reprise.refit.exponents.class_codes import pack, unpack
from reprise.refit.exponents.conditional_entropy import CONTEXTS, context, place_bits, step_bits
from reprise.refit.exponents.exponent_classes import Changes, partition, population, restore
from reprise.refit.exponents.exponent_coder import _PREFIX, decode, encode
from reprise.refit.exponents.flag_runs import Run, gaps_of, places_of, widths_of

pytest.importorskip("numba")

DTYPES = list(exponent_classes.EXPONENTS)


def streams(frame: bytes) -> tuple[bytes, bytes]:
    """(counts, streams) of a frame."""
    size = _PREFIX.unpack_from(frame)[7]
    body = frame[_PREFIX.size : -8]
    return body[:size], body[size:]


def forge(frame: bytes, counts: bytes, body: bytes, changes: int) -> bytes:
    """`frame` with other content and a digest that fits."""
    fields = list(_PREFIX.unpack_from(frame))
    fields[4], fields[7], fields[8] = changes, len(counts), _PREFIX.size + len(counts) + len(body) + 8
    return signed(_PREFIX.pack(*fields) + counts + body + bytes(8))


# -- right values ------------------------------------------------------------------------------------------------------


def test_eight_words_by_hand():
    # exponents 127 128 0 121 128 0 126 133; steps less one: 65534 in class 0, 1 in 121, 33153 in 126, 3 in 128
    counts, body = streams(encode(bits(OLD), bits(NEW)))
    assert counts.hex(" ", -4) == bytes(
        [
            *(1, 15, 1, 0),  # class 0: one of two, 15 low bits, its quotient is above 0 and not above 1
            *(1, 1, 0),  # 121: the only one, 1 low bit, quotient 0
            *(1, 15, 1, 0),  # 126
            *(0,),  # 127
            *(1, 1, 1, 0),  # 128: one of two
            *(0,),  # 133
        ]
    ).hex(" ", -4)
    # 15 bits 32766, 1 bit 1, 15 bits 385, 1 bit 1; then a one for each gap of no flags, in classes 0 and 128
    assert body.hex() == "fffd0303" + "c0"


def test_partition_by_hand():
    changes = partition(bits(OLD), bits(NEW))
    assert {k: int(n) for k, n in enumerate(changes.population) if n} == {0: 2, 121: 1, 126: 1, 127: 1, 128: 2, 133: 1}
    assert np.flatnonzero(changes.changed).tolist() == [0, 121, 126, 128]
    assert changes.places.tolist() == [0, 0, 0, 0]
    assert changes.words.tolist() == [65535, 2, 33154, 4]


@pytest.mark.parametrize(
    "length, count, flipped, places, width",
    [(100, 0, False, 0, 0), (100, 100, True, 0, 0), (100, 50, False, 50, 0), (100, 51, True, 49, 0)]
    + [(100, 25, False, 25, 1), (1000, 10, False, 10, 6), (1 << 40, 1, False, 1, 30)],
)
def test_what_a_run_implies(length, count, flipped, places, width):
    run = Run(length, count)
    assert (run.flipped, run.places, run.width) == (flipped, places, width)


def test_the_width_of_a_run_is_the_best_one_for_independent_flags():
    for share in np.geomspace(1e-5, 0.5, 40):
        # a gap is geometric: its quotient by 2^k has mean q / (1 - q) with q = (1 - share)^(2^k)
        quotients = [(1 - share) ** (1 << k) for k in range(25)]
        costs = [k + 1 + q / (1 - q) for k, q in enumerate(quotients)]
        count = round(share * (1 << 30))
        entropy = -log2(share) - (1 - share) / share * log2(1 - share)
        assert costs[Run(1 << 30, count).width] < min(costs) + 1e-3
        assert min(costs) < 1.045 * entropy


def test_entropies_by_hand():
    # exponent 1: 4 words of which 1 changes; exponent 2: 4 of which 2 change; 3 changes
    old = np.repeat(np.array([1 << 7, 2 << 7], np.uint16), 4)
    new = old + np.array([1, 0, 0, 0, 1, 2, 0, 0], np.uint16)

    def h(p):
        return -p * log2(p) - (1 - p) * log2(1 - p)

    old, new = bits(old), bits(new)
    assert place_bits(old, new, "nothing") == pytest.approx(8 * h(3 / 8) / 3)
    assert place_bits(old, new, "exponent") == pytest.approx((4 * h(1 / 4) + 4 * h(1 / 2)) / 3)
    assert step_bits(old, new, "nothing") == pytest.approx(h(1 / 3))
    assert step_bits(old, new, "exponent") == pytest.approx(2 / 3)
    assert np.isnan(place_bits(old, old)) and np.isnan(step_bits(old, old))
    with pytest.raises(ValueError, match="^known='weather'"):
        place_bits(old, new, "weather")


def test_contexts_tell_apart_what_they_name():
    every = np.arange(1 << 16, dtype=np.uint16)
    counts = [np.unique(context(every, "BF16", known)).size for known in CONTEXTS]
    assert dict(zip(CONTEXTS, counts, strict=True)) == {
        "nothing": 1,
        "exponent": 256,
        "exponent, sign": 512,
        "exponent, binade edge": 768,
        "exponent, parity": 512,
        "word": 65536,
    }


# -- exactness ---------------------------------------------------------------------------------------------------------

words = arrays.arrays(np.uint16, st.integers(0, 80), elements=st.integers(0, 0xFFFF))


@given(words, st.data(), st.sampled_from(DTYPES))
@settings(max_examples=150, deadline=None)
def test_any_words_come_back(old, data, dtype):
    masks = data.draw(arrays.arrays(np.uint16, old.shape, elements=st.sampled_from([0, 0, 0, 1, 3, 0x8000, 0xFFFF])))
    old, new = bits(old, dtype), bits(old ^ masks, dtype)
    kept = old.words.copy()
    decoded = decode(encode(old, new), old)
    assert (decoded.dtype, decoded.shape) == (dtype, new.shape)
    assert np.array_equal(decoded.words, new.words) and np.array_equal(old.words, kept)


def test_every_pattern_and_every_difference():
    old = np.arange(1 << 16, dtype=np.uint16)
    for shift in (0, 1, 0x7FFF, 0x8000, 0xFFFF):
        new = old + np.uint16(shift)
        assert np.array_equal(decode(encode(bits(old), bits(new)), bits(old)).words, new)
    differences = np.roll(old, 12345)
    assert np.array_equal(decode(encode(bits(old), bits(differences)), bits(old)).words, differences)


def test_shapes_arrays_and_tensors():
    old, new = perturbed(600, 0.1)
    shaped = bits(old, shape=(20, 30))
    assert decode(encode(shaped, bits(new, shape=(20, 30))), shaped).shape == (20, 30)
    half_old, half_new = old.view(np.float16), new.view(np.float16)
    frame = encode(half_old, half_new)
    assert np.array_equal(decode(frame, half_old).words, new)
    torch = pytest.importorskip("torch")
    old_tensor, new_tensor = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in (old, new))
    assert encode(old_tensor, new_tensor) == encode(bits(old), bits(new))


@pytest.mark.parametrize("elements", [70_001, 1 << 17])
def test_compiled_code_and_numpy_give_the_same_bytes(elements, monkeypatch):
    old, new = (bits(x) for x in skewed(elements, 0))
    compiled = encode(old, new)
    assert np.array_equal(decode(compiled, old).words, new.words)
    monkeypatch.setattr(exponent_classes, "COMPILED_FROM", 1 << 62)
    monkeypatch.setattr(bit_streams, "COMPILED_FROM", 1 << 62)
    assert encode(old, new) == compiled
    assert np.array_equal(decode(compiled, old).words, new.words)


def test_compiled_passes_agree_with_numpy_on_any_lanes():
    from reprise.refit.exponents.exponent_kernels import CompiledKernels

    rng = np.random.default_rng(0)
    for size in range(12):
        old = rng.integers(1 << 16, size=size, dtype=np.uint16) & 0x81FF  # few exponents
        new = np.where(rng.random(size) < 0.5, old + np.uint16(3), old)
        old.flags.writeable = False
        ours = CompiledKernels.partition(old, new, 7, 255)
        for mine, theirs in zip(ours, partition(bits(old), bits(new)), strict=True):
            assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
        assert np.array_equal(CompiledKernels.population(old, 7, 255), population(bits(old)))
        assert np.array_equal(CompiledKernels.restore(old, 7, 255, ours), new)
        assert np.array_equal(restore(bits(old), ours), new)


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), max_size=6), st.integers(0, 1 << 32))
def test_runs_come_back(shapes, seed):
    rng = np.random.default_rng(seed)
    flags = [rng.random(length) < share for length, share in shapes]
    runs, places = [Run(f.size, int(f.sum())) for f in flags], [np.flatnonzero(f) for f in flags]
    gaps, widths = gaps_of(runs, places), widths_of(runs)
    back = places_of(runs, gaps >> widths, gaps & (1 << widths) - 1)
    assert [at.tolist() for at in back] == [at.tolist() for at in places]


@given(arrays.arrays(np.int64, st.integers(0, 50), elements=st.integers(0, 300)), st.data())
def test_bit_streams_agree_with_numpy_and_come_back(numbers, data):
    from reprise.refit.exponents.bit_kernels import CompiledKernels

    widths = data.draw(arrays.arrays(np.int64, numbers.shape, elements=st.integers(0, bit_streams.MAX_WIDTH)))
    fields, unary = bit_streams.write_fields(numbers, widths), bit_streams.write_unary(numbers)
    assert np.array_equal(CompiledKernels.write_fields(numbers, widths), fields)
    assert np.array_equal(CompiledKernels.write_unary(numbers), unary)
    for kernels in (bit_streams.NumpyKernels, CompiledKernels):
        assert np.array_equal(kernels.read_fields(fields, widths), numbers & (1 << widths) - 1)
        assert np.array_equal(kernels.read_unary(unary, numbers.size), numbers)


# -- sizes -------------------------------------------------------------------------------------------------------------


def skewed(elements: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of eight exponents, each of which changes half as often as the one below it, mostly by one ulp."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(8, size=elements)
    old = (rng.integers(2, size=elements) << 15 | (exponent + 110) << 7 | rng.integers(128, size=elements)).astype(
        "<u2"
    )
    size = rng.geometric(0.8, elements)
    steps = np.where(rng.random(elements) < 0.5, size, -size)
    return old, np.where(rng.random(elements) < 0.6 / 2**exponent, (old + steps).astype("<u2"), old)


def test_a_frame_comes_within_four_per_cent_of_the_entropy():
    old, new = (bits(x) for x in skewed(1 << 18, 1))
    frame, changes = encode(old, new), int((old.words != new.words).sum())
    bound = place_bits(old, new) + step_bits(old, new)
    assert 1.0 < 8 * len(frame) / changes / bound < 1.04


def test_blind_to_exponents_it_comes_within_four_per_cent_of_the_other_entropy():
    old, new = (bits(x, "U16") for x in skewed(1 << 18, 1))
    frame, changes = encode(old, new), int((old.words != new.words).sum())
    exponents = [bits(b.words) for b in (old, new)]
    bound = place_bits(*exponents, "nothing") + step_bits(*exponents, "nothing")
    assert 1.0 < 8 * len(frame) / changes / bound < 1.04
    assert bound > 1.2 * (place_bits(*exponents) + step_bits(*exponents))


def test_changes_that_do_not_depend_on_the_exponent_gain_nothing():
    old, new = perturbed(1 << 18, 0.03)
    known, blind = (len(encode(bits(old, dtype), bits(new, dtype))) for dtype in ("BF16", "U16"))
    assert known / blind == pytest.approx(1, abs=0.02)
    assert place_bits(bits(old), bits(new)) == pytest.approx(place_bits(bits(old), bits(new), "nothing"), rel=0.005)


def test_knowing_more_never_costs_entropy():
    old, new = (bits(x) for x in skewed(1 << 14, 2))
    for price in (place_bits, step_bits):
        nothing, exponent, *finer, word = (price(old, new, known) for known in CONTEXTS)
        assert word <= min(finer) and max(finer) <= exponent <= nothing


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample():
    old, new = (bits(x) for x in skewed(300, 3))
    return old, new, encode(old, new)


def test_every_truncation_and_extension_is_refused(sample):
    old, _, frame = sample
    for end in range(len(frame)):
        with pytest.raises(PayloadError):
            decode(frame[:end], old)
    with pytest.raises(PayloadError):
        decode(frame + b"\0", old)


def test_every_bit_flip_is_refused(sample):
    old, _, frame = sample
    for at in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(PayloadError):
            decode(bytes(damaged), old)


def test_every_signed_bit_flip_is_refused_or_changes_nothing(sample):
    # whoever writes frames can sign them; padding bits of the fields are the only ones that may differ
    old, new, frame = sample
    accepted = 0
    for at in range(8 * (len(frame) - 8)):
        damaged = bytearray(frame)
        damaged[at // 8] ^= 1 << at % 8
        try:
            decoded = decode(signed(bytes(damaged)), old)
        except PayloadError:
            continue
        assert np.array_equal(decoded.words, new.words)
        accepted += 1
    assert accepted < 8


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 400))
@settings(max_examples=300, deadline=None)
def test_signed_nonsense_is_refused(sample, counts, body, changes):
    old, _, frame = sample
    with pytest.raises(PayloadError):
        decode(forge(frame, counts, body, changes), old)


@pytest.mark.parametrize(
    "counts, body, changes, message",
    [
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "fffd0303c0", 5, "counts: 4 changes"),
        ([3, 15, 1, 0], "", 4, "counts: 3 changes in a class, expected 0 to 2"),
        ([1, 16, 1, 0], "", 4, "counts: 16 low bits"),
        ([1, 0, 1, 0], "", 4, "counts: 0 low bits"),
        ([1, 15, 2, 0], "", 4, "counts: 2 flags in a layer"),
        ([1, 15, 1], "", 4, "counts: end inside"),
        ([0, 0, 0, 0, 0, 0, 9], "", 0, "counts: 1 bytes are left over"),
        ([0, 0, 0, 0, 0, 0], "00", 0, "unary: bytes after"),
        ([0, 0, 0, 0, 0, 0], "80", 0, "unary: 1 numbers, expected 0"),
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "fffd0303", 4, "streams: 4 bytes for 32 bits"),
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "fffd030330", 4, "unary: place 2 in a run of 2"),
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "fffd030301" + "01", 4, "unary: a gap longer"),
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "ffff0303c0", 4, "step: 65535"),
        ([1, 15, 1, 0, 1, 1, 0, 1, 15, 1, 0, 0, 1, 1, 1, 0, 0], "fffd0303a0", 4, "digest: what the frame yields"),
    ],
)
def test_what_contradicts_itself_is_named(counts, body, changes, message):
    frame = forge(encode(bits(OLD), bits(NEW)), bytes(counts), bytes.fromhex(body), changes)
    with pytest.raises(PayloadError, match=message):
        decode(frame, bits(OLD))


def test_another_base_is_refused_before_anything_else(sample):
    old, new, frame = sample
    garbage = forge(frame, b"\xff" * 20, b"", 3)
    for wrong in (new, bits(old.words[:-1]), bits(old.words, "F16")):
        with pytest.raises(StaleBaseError, match="^old: "):
            decode(garbage, wrong)


@pytest.mark.parametrize(
    "old, new, message",
    [
        (Bits("F32", (1,), np.zeros(1, "<u4")), Bits("F32", (1,), np.zeros(1, "<u4")), "dtype='F32'"),
        (bits(OLD), bits(NEW, "F16"), r"new: F16\(8,\), expected BF16\(8,\)"),
        (bits(OLD), bits(NEW[:4]), r"new: BF16\(4,\)"),
    ],
)
def test_what_cannot_be_coded_is_named(old, new, message):
    with pytest.raises(RefitSchemaError, match=f"^{message}"):
        encode(old, new)


def test_a_small_frame_cannot_ask_for_much_memory():
    # all of a large tensor declared changed in every layer, in a frame that has no bits for it
    held = np.zeros(exponent_classes.CLASSES, np.int64)
    held[0] = 1 << 50
    everything = b"\x80" * 7 + b"\x02"
    with pytest.raises(PayloadError, match="^streams: 0 bytes"):
        unpack(everything + b"\x01" + everything * 8, np.empty(0, np.uint8), held, 1 << 50)


def test_nothing_changed_costs_a_byte_a_class():
    counts, body = pack(partition(bits(OLD), bits(OLD)))
    assert (counts, body) == (bytes(6), b"")
    empty = bits(np.empty(0, np.uint16))
    assert decode(encode(empty, empty), empty).words.size == 0
    assert isinstance(partition(empty, empty), Changes)
    assert struct.calcsize("<8sIIQQQQQQ") == _PREFIX.size == 64
