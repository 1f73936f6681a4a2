"""The range coder and what it codes: exact round trips, sizes near the entropy, and a refusal of any other x."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.fp4.errors import Fp4Error, NonFiniteInput, ScaleFormatMismatch
from reprise.fp4.range_coder import BitReader, BitWriter
from reprise.fp4.record import SiteGuidance
from reprise.fp4.side_information import (
    OtherSideInformation,
    conditional_entropy,
    decode,
    distance_octave,
    encode,
    entropies,
    flips,
)
from reprise.fp4.tensor import quantize


def rounded(x):
    """What a rollout in BF16 leaves behind."""
    q = quantize(x.bfloat16(), "nvfp4", "token")
    return SiteGuidance(q.codes() & 1, q.block_scale, q.global_scale)


def pair(noise, shape=(40, 64), seed=0):
    """A trainer's x, and the guidance of a rollout whose activations differ by `noise` relative to it."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=draw)
    return x, rounded(x * (1 + noise * torch.randn(*shape, generator=draw)))


def equal(a, b):
    return all(torch.equal(getattr(a, part), getattr(b, part)) for part in ("low_bits", "block_scale", "global_scale"))


# ---- the range coder -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=400))
def test_bits_come_back(pairs):
    bits = np.array([bit for bit, _ in pairs], np.uint8)
    contexts = np.array([c for _, c in pairs], np.int64)
    writer = BitWriter(4)
    writer.write(bits, contexts)
    assert np.array_equal(BitReader(writer.finish(), 4).read(contexts), bits)


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.02, 0.5, 0.97, 1.0])
def test_size_is_that_of_the_adaptive_model_and_near_the_entropy(share):
    draw = np.random.default_rng(3)
    bits = (draw.random(20_000) < share).astype(np.uint8)
    writer = BitWriter(1)
    writer.write(bits)
    data = writer.finish()
    ones = np.concatenate([[0], np.cumsum(bits)[:-1]])
    p = (ones + 0.5) / (np.arange(bits.size) + 1)
    ideal = -np.log2(np.where(bits == 1, p, 1 - p)).sum()
    assert ideal / 8 - 4 <= len(data) <= ideal / 8 + 4
    entropy = bits.size * conditional_entropy(bits, np.zeros(bits.size, np.uint8))
    assert 8 * len(data) <= entropy + np.log2(bits.size) / 2 + 16
    assert np.array_equal(BitReader(data, 1).read(count=bits.size), bits)


def test_pieces_under_their_own_contexts_and_counts_past_the_halving():
    writer = BitWriter(2)
    writer._totals[1], writer._zeros[1] = (1 << 22) - 20, (1 << 22) - 30  # as after two million bits
    bits = np.array([0, 1] * 40, np.uint8)
    writer.write(bits[:31], 1)
    writer.write(bits[31:], 0)
    reader = BitReader(writer.finish(), 2)
    reader._totals[1], reader._zeros[1] = (1 << 22) - 20, (1 << 22) - 30
    assert np.array_equal(np.concatenate([reader.read(1, 31), reader.read(0, 49)]), bits)


def test_a_carry_runs_through_bytes_of_255():
    carried = 0
    for seed in range(40):
        bits = (np.random.default_rng(seed).random(3000) < 0.999).astype(np.uint8)
        writer = BitWriter(1)
        writer.write(bits)
        writer.finish()
        data = bytes(writer._out)
        carried += b"\0\0" in data or b"\xff\xff" in data
        assert np.array_equal(BitReader(data, 1).read(count=3000), bits)
    assert BitReader(b"", 1).read(count=5).tolist() == [0] * 5


# ---- entropies and contexts ----------------------------------------------------------------------------------------


def test_conditional_entropy_by_hand():
    events, contexts = np.array([0, 1, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1, 1])
    assert conditional_entropy(events, contexts) == pytest.approx((2 * 1 + 4 * 1) / 6)
    assert conditional_entropy(events, events) == 0
    quarter = 0.25 * 2 + 0.75 * np.log2(4 / 3)
    assert conditional_entropy(np.array([1, 0, 0, 0]), np.zeros(4, int)) == pytest.approx(quarter)


def test_octaves_count_down_to_the_boundary_and_ignore_the_sign():
    z = torch.tensor([0.0, 0.5, 6.0, 8.0, 1.0, 1.1, 4.9, 0.26, 2.49, 0.25, 5.0])
    # |position - 1/2|: 0.5 on a value, then 0.3, 0.05, 0.02, 0.01, and 0 on a tie
    assert distance_octave(z).tolist() == [0, 0, 0, 0, 0, 1, 4, 5, 6, 15, 15]
    assert torch.equal(distance_octave(-z), distance_octave(z))


def test_flips_are_found_next_to_boundaries():
    x, held = pair(0.003, (200, 64))
    flipped, contexts = flips(x, held)
    near, far = flipped[contexts >= 6].float().mean(), flipped[contexts <= 2].float().mean()
    assert float(near) > 0.2 and float(far) < 0.002
    q = quantize(x, "nvfp4", "token")
    assert int(flips(x, SiteGuidance(q.codes() & 1, q.block_scale, q.global_scale))[0].sum()) == 0


# ---- the coder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.05, 3.0])
@pytest.mark.parametrize("shape", [(1, 16), (30, 64), (7, 2, 32)])
def test_guidance_comes_back(noise, shape):
    x, held = pair(noise, shape)
    assert equal(decode(x, encode(x, held)), held)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30))
def test_guidance_that_has_nothing_to_do_with_x_comes_back_too(seed):
    x, held = pair(0.0, (6, 32), seed)
    other = rounded(torch.randn(6, 32, generator=torch.Generator().manual_seed(seed + 1)) * 1e3)
    assert equal(decode(x, encode(x, other)), other)
    zeros = rounded(torch.zeros(6, 32))
    assert equal(decode(x, encode(x, zeros)), zeros)
    assert equal(decode(torch.zeros(6, 32), encode(torch.zeros(6, 32), held)), held)


def test_size_is_near_the_entropy_and_far_below_one_bit():
    x, held = pair(0.003, (400, 256))
    bits = 8 * len(encode(x, held)) / x.numel()
    entropy = sum(entropies(x, held).values())
    assert entropy <= bits * 1.001 and bits < 1.05 * entropy + 0.002
    assert bits < 0.1  # the cache has 1 + 8/16 + 32/256


def test_entropy_grows_with_the_distance_between_the_paths():
    sizes = [sum(entropies(*pair(noise, (100, 64))).values()) for noise in (0.0, 0.003, 0.03, 0.3)]
    assert sizes == sorted(sizes)
    assert entropies(*pair(100.0, (100, 64)))["low bit"] > 0.9


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x + 1e-3,
        lambda x: x * 2,
        lambda x: x.flip(0),
        lambda x: torch.nextafter(x, x + 1),
        lambda x: x[:-1],
        lambda x: x.bfloat16(),
    ],
)
def test_another_x_is_refused(change):
    x, held = pair(0.01, (60, 64))
    data = encode(x, held)
    with pytest.raises(OtherSideInformation, match=r"site \(3, 'x'\).*bit for bit"):
        decode(change(x), data, site=(3, "x"))


def test_damaged_data_is_refused():
    x, held = pair(0.01, (20, 64))
    data = encode(x, held)
    draw = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(data)
        damaged[draw.integers(len(data))] ^= 1 << draw.integers(8)
        with pytest.raises(OtherSideInformation):
            decode(x, bytes(damaged))
        with pytest.raises(OtherSideInformation):
            decode(x, data[: draw.integers(len(data) - 1)])


def test_refusals():
    x, held = pair(0.0)
    with pytest.raises(NonFiniteInput, match=r"site \(0, 'k'\)"):
        encode(x * float("nan"), held, site=(0, "k"))
    with pytest.raises(Fp4Error, match="expected 0..1"):
        encode(x, replace(held, low_bits=held.low_bits + 1))
    with pytest.raises(Fp4Error, match=r"low_bits \(39, 64\)"):
        encode(x, held.rows(0, 39))
    with pytest.raises(ScaleFormatMismatch):
        encode(x, replace(held, global_scale=None))
    with pytest.raises(Fp4Error, match="whole blocks"):
        decode(x[:, :15], b"")


def test_scales_that_could_not_be_decoded_are_not_encoded():
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    q = quantize(x, scale="token")
    held = SiteGuidance(q.codes() & 1, q.block_scale, q.global_scale)
    for call in (encode, entropies):
        with pytest.raises(ScaleFormatMismatch, match="global_scale of a tensor"):
            call(x, replace(held, global_scale=torch.tensor(1.0)))
        with pytest.raises(ScaleFormatMismatch, match="8 scale bytes are 0"):
            call(x, replace(held, block_scale=torch.zeros_like(held.block_scale)))
