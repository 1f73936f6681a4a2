"""Torch tensors: dtypes, strides, ties, autograd; skipped where torch is not installed."""

import numpy as np
import pytest
from codec import from_bf16, perturbed

from reprise.refit import (
    OPERATIONS,
    PayloadError,
    RefitSchemaError,
    apply_,
    as_bits,
    decode,
    diff_bits,
    encode,
    predict_change,
)

torch = pytest.importorskip("torch")

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}


def stored(words: np.ndarray, dtype, shape) -> "torch.Tensor":
    return torch.from_numpy(words.view(np.uint8).copy()).view(dtype).reshape(shape)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_round_trips(name, op):
    rng = np.random.default_rng(0)
    top = 2 if name == "BOOL" else 256
    size = DTYPES[name].itemsize
    old, new = rng.integers(0, top, (2, 60 * size), np.uint8)
    new = np.where(np.repeat(rng.random(60) < 0.3, size), new, old)
    target, after = stored(old, DTYPES[name], (5, 12)), stored(new, DTYPES[name], (5, 12))
    assert as_bits(target).dtype == name and as_bits(target).shape == (5, 12)
    apply_(target, decode(encode(diff_bits(target, after), op)))
    assert as_bits(target).words.tobytes() == new.tobytes()


def test_storage_is_shared_and_not_copied():
    tensor = torch.zeros(4, dtype=torch.bfloat16)
    as_bits(tensor).words[1] = 0x3F80
    assert tensor.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(
    "view", [lambda t: t.T, lambda t: t[::2], lambda t: t[:, 1:7]], ids=["transposed", "rows", "block"]
)
def test_strided_tensors_change_in_their_own_memory(view, op):
    old, new = perturbed(120, 0.5)
    whole, other = stored(old, torch.bfloat16, (12, 10)), stored(new, torch.bfloat16, (12, 10))
    other.view(torch.int16)[0, 1:3] = torch.tensor([0x7FC1, -1])  # NaNs with payloads
    expected = whole.clone()
    view(expected).view(torch.int16).copy_(view(other).view(torch.int16))
    apply_(view(whole), decode(encode(diff_bits(view(whole), view(other)), op)))
    assert torch.equal(whole.view(torch.int16), expected.view(torch.int16))


def test_zero_dimensional_and_empty():
    old, new = {"s": torch.tensor(1.0), "e": torch.empty(0, 3)}, {"s": torch.tensor(-0.0), "e": torch.empty(0, 3)}
    delta = decode(encode(diff_bits(old, new)))
    assert [(record.name, record.shape) for record in delta.tensors] == [("s", ())]
    assert torch.signbit(apply_(old, delta)["s"])


def tied(seed: int) -> dict:
    words = perturbed(64, 1.0)[seed]
    weight = stored(words, torch.bfloat16, (8, 8))
    return {"embed.weight": weight, "mlp.weight": weight.clone(), "head.weight": weight}


@pytest.mark.parametrize("op", OPERATIONS)
def test_tied_weights_travel_once(op):
    old, new = tied(0), tied(1)
    delta = decode(encode(diff_bits(old, new), op))
    assert [(r.name, r.aliases) for r in delta.tensors] == [("embed.weight", ("head.weight",)), ("mlp.weight", ())]
    apply_(old, delta)
    assert all(torch.equal(old[name], new[name]) for name in new)
    assert old["embed.weight"].data_ptr() == old["head.weight"].data_ptr()


def test_views_of_one_storage_are_not_ties():
    flat, after = torch.zeros(8), torch.ones(8)
    delta = diff_bits({"low": flat[:4], "high": flat[4:]}, {"low": after[:4], "high": after[4:]})
    assert len(delta.tensors) == 2
    apply_({"low": flat[:4], "high": flat[4:]}, decode(encode(delta)))
    assert flat.tolist() == [1] * 8


def test_parameters_of_a_module():
    torch.manual_seed(0)
    old, new = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    apply_(dict(old.named_parameters()), decode(encode(diff_bits(old.state_dict(), new.state_dict()))))
    assert all(torch.equal(a, b) for a, b in zip(old.parameters(), new.parameters(), strict=True))


def test_autograd_sees_that_a_weight_changed():
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    apply_(weight, diff_bits(torch.ones(3), torch.full((3,), 2.0)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_lazy_conjugates_are_read_and_not_written():
    old = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64)
    assert as_bits(old.conj()).words.tobytes() == old.conj().resolve_conj().numpy().tobytes()
    with pytest.raises(RefitSchemaError, match="conjugated"):
        apply_(old.conj(), diff_bits(old.conj(), old.conj()))


@pytest.mark.parametrize(
    "tensor, why",
    [
        (torch.zeros(2, dtype=torch.complex128), "dtype=torch.complex128: expected one of bool"),
        (torch.empty(2, device="meta"), "on meta, expected strided storage"),
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
    ],
)
def test_other_storage_is_refused(tensor, why):
    with pytest.raises(RefitSchemaError, match=why):
        as_bits(tensor)


def test_expanded_targets_are_refused():
    target = torch.zeros(1).expand(4)
    with pytest.raises(RefitSchemaError, match=r"strides=\(0,\): elements share memory"):
        apply_(target, diff_bits(torch.zeros(4), torch.ones(4)))


def test_two_records_on_one_storage_are_refused():
    weight = torch.zeros(4)
    delta = diff_bits({"a": torch.zeros(4), "b": torch.zeros(4)}, {"a": torch.ones(4), "b": torch.zeros(4)})
    with pytest.raises(PayloadError, match="'b': shares its storage with 'a'"):
        apply_({"a": weight, "b": weight}, delta)
    assert weight.tolist() == [0] * 4


def test_torch_and_numpy_storage_give_one_payload():
    old, new = perturbed(1000, 0.1)
    tensors = [stored(words, torch.bfloat16, (10, 100)) for words in (old, new)]
    assert encode(diff_bits(*tensors)) == encode(diff_bits(*map(as_bits, tensors)))
    assert predict_change(tensors[0], 1e-6) == predict_change(from_bf16(old), 1e-6)


@pytest.mark.parametrize("cut", [lambda z: (z[:12], z[6:]), lambda z: (z[::2], z[::3]), lambda z: (z, z.view(4, 5))])
def test_tensors_that_share_a_part_are_refused(cut):
    buffer = torch.zeros(20, dtype=torch.bfloat16)
    places = dict(zip("ab", cut(buffer), strict=True))
    old = {name: torch.zeros_like(place) for name, place in places.items()}
    delta = decode(encode(diff_bits(old, {name: torch.ones_like(place) for name, place in places.items()})))
    with pytest.raises(RefitSchemaError, match="tensor '[ab]': shares part of its storage with '[ab]'"):
        apply_(places, delta)
    assert not buffer.any()


def test_views_of_one_tensor_that_are_apart_are_written():
    fused = torch.zeros(4, 6, dtype=torch.bfloat16)
    places = {"q": fused[:, :2], "k": fused[:, 2:4], "v": fused.T[4:]}
    old = {name: torch.zeros_like(place) for name, place in places.items()}
    new = {name: torch.full_like(place, k + 1) for k, (name, place) in enumerate(places.items())}
    apply_(places, decode(encode(diff_bits(old, new))))
    assert fused.tolist() == [[1, 1, 2, 2, 3, 3]] * 4


def test_sparse_tensors_are_refused():
    dense, sparse = torch.eye(3), torch.eye(3).to_sparse()
    for old, new in ((sparse, sparse), ({"w": sparse}, {"w": sparse}), ({"w": dense}, {"w": sparse})):
        with pytest.raises(RefitSchemaError, match="layout torch.sparse_coo"):
            diff_bits(old, new)
    with pytest.raises(RefitSchemaError, match="layout torch.sparse_coo"):
        apply_({"w": sparse}, diff_bits({"w": dense}, {"w": dense * 2}))
