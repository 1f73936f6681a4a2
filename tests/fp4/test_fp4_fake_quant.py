"""Fake quantisation: the right values forward, the identity backward, on every parameter."""

import pytest
import torch

from reprise.fp4.e2m1 import e2m1_decode, e2m1_encode
from reprise.fp4.errors import BlockShapeError, Fp4Error, NonFiniteInput, ScaleFormatMismatch
from reprise.fp4.fake_quant import Guide, fake_quant, straight_through
from reprise.fp4.guided import guided_round
from reprise.fp4.reconstruct import reconstruct
from reprise.fp4.tensor import quantize


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def guide_of(x, b, fmt="nvfp4"):
    q = quantize(x, fmt, "token")
    return Guide(q.codes() & (1 << b) - 1, q.scales(), b)


def test_worked_example_with_guidance_and_without():
    x = torch.full((1, 16), 59.76)
    x[0, 0] = 144  # block amax 144 at global amax 2688 gives scale 24
    x = torch.cat([x, torch.full((1, 16), 2688.0)], 1)
    rollout = torch.where(x == 59.76, 60.24, x)
    y = fake_quant(x, guide_of(rollout, 4))
    assert y[0, 1:16].tolist() == [72.0] * 15 and y[0, 0] == 144
    assert fake_quant(x)[0, 1:16].tolist() == [48.0] * 15


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_guided_values_are_scale_times_guided_code(b, fmt):
    x, rollout = draw(5, 3, 64), draw(5, 3, 64) + 0.05 * draw(5, 3, 64, seed=1)
    guide = guide_of(rollout, b, fmt)
    scale = guide.scale.repeat_interleave(64 // guide.scale.shape[-1], -1)
    z = x / scale
    codes = guided_round(z, reconstruct(z, guide.low_bits, b, "bracket"))
    assert torch.equal(fake_quant(x, guide, rule="bracket"), e2m1_decode(codes) * scale)


@pytest.mark.parametrize("b", [1, 4])
def test_identical_paths_give_the_rollouts_values(b):
    x = draw(7, 48)
    assert torch.equal(fake_quant(x, guide_of(x, b)), fake_quant(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("guided", [False, True])
def test_the_gradient_passes_bit_for_bit(dtype, guided):
    x = draw(4, 32, dtype=dtype).requires_grad_()
    y = fake_quant(x, guide_of(x.detach(), 1) if guided else None)
    incoming = draw(4, 32, seed=2, dtype=dtype)
    (gradient,) = torch.autograd.grad(y, x, incoming)
    assert y.dtype == dtype and torch.equal(gradient, incoming)


def test_every_parameter_gets_a_gradient_and_the_weights_see_the_rounded_input():
    first, second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)
    x = draw(6, 16)
    hidden = first(x)
    rounded = fake_quant(hidden, guide_of(hidden.detach(), 1), site=(0, "h"))
    out = second(rounded)
    out.pow(2).sum().backward()
    for parameter in (*first.parameters(), *second.parameters()):
        assert (
            parameter.grad is not None and bool(parameter.grad.isfinite().all()) and bool((parameter.grad != 0).any())
        )
    incoming = 2 * out.detach()
    assert torch.allclose(second.weight.grad, incoming.T @ rounded.detach())
    assert not torch.allclose(second.weight.grad, incoming.T @ hidden.detach(), rtol=1e-3)


def test_guidance_by_the_own_codes_has_the_gradient_of_rounding_to_nearest():
    x = draw(6, 32).requires_grad_()
    weight = draw(32, 8, seed=3)
    plain, guided = (
        torch.autograd.grad((fake_quant(x, guide) @ weight).pow(3).sum(), x)[0]
        for guide in (None, guide_of(x.detach(), 1))
    )
    assert torch.equal(plain, guided)


def test_no_gradient_where_none_is_wanted():
    x = draw(2, 16).requires_grad_()
    with torch.no_grad():
        assert not fake_quant(x).requires_grad
    assert not fake_quant(x.detach()).requires_grad


def test_y_gets_no_gradient_and_must_be_like_x():
    x, y = draw(3).requires_grad_(), draw(3, seed=1).requires_grad_()
    straight_through(x, y).sum().backward()
    assert x.grad.tolist() == [1, 1, 1] and y.grad is None
    with pytest.raises(Fp4Error, match="y: torch.bfloat16"):
        straight_through(x, y.bfloat16())


def test_the_guides_scale_is_used_not_the_own():
    x = draw(1, 16)
    codes = e2m1_encode(x / 8)
    y = fake_quant(x, Guide(codes, torch.tensor([[8.0]]), 4))
    assert set((y / 8).abs().flatten().tolist()) <= {0.0, 0.5, 1.0}


@pytest.mark.parametrize(
    "change, match",
    [
        (dict(low_bits=torch.zeros(2, 48, dtype=torch.uint8)), r"x.*low_bits \(2, 48\), expected \(2, 32\)"),
        (dict(scale=torch.ones(2, 3)), r"x.*scale \(2, 3\)"),
        (dict(scale=torch.ones(3, 2)), r"x.*scale \(3, 2\)"),
        (dict(scale=torch.ones(2, 4)), r"x.*scale \(2, 4\), expected \(2,\) and one for every 16 or 32"),
        (dict(scale=torch.ones(())), r"x.*scale \(\)"),
        (dict(scale=torch.zeros(2, 2)), "4 scales are not positive"),
        (dict(scale=torch.full((2, 2), torch.inf)), "4 scales are not positive or not finite"),
        (dict(scale=torch.ones(2, 2, dtype=torch.bfloat16)), "expected float32"),
        (dict(b=5), "b=5"),
    ],
)
def test_a_guide_that_does_not_fit_is_refused(change, match):
    x = draw(2, 32)
    with pytest.raises(Fp4Error, match=match):
        fake_quant(x, guide_of(x, 4)._replace(**change), site=(3, "x"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("guided", [False, True])
def test_nan_and_inf_name_the_site(bad, guided):
    x = draw(2, 32)
    guide = guide_of(x, 4) if guided else None
    x[1, 3] = bad
    with pytest.raises(NonFiniteInput, match=r"site \(3, 'x'\): 1 values"):
        fake_quant(x, guide, site=(3, "x"))


def test_scales_of_neither_format_are_of_another_format():
    x = draw(2, 32)
    with pytest.raises(ScaleFormatMismatch, match=r"\(3, 'x'\)"):
        fake_quant(x, guide_of(x, 4)._replace(scale=torch.ones(2, 8)), site=(3, "x"))
    with pytest.raises(BlockShapeError, match=r"\(3, 'x'\)"):
        fake_quant(torch.tensor(1.0), Guide(torch.tensor(1, dtype=torch.uint8), torch.tensor(1.0), 4), site=(3, "x"))


def test_an_empty_tensor_stays_empty_with_guidance_and_without():
    for shape in ((0, 32), (3, 0)):
        x = torch.zeros(shape)
        assert fake_quant(x).shape == fake_quant(x, guide_of(x, 4)).shape == shape
