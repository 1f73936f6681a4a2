"""Copy plans: places against PyTorch's own copies, what may use which operation, and what must be refused."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from reprise.refit import OPERATIONS, as_bits, diff_bits  # noqa: E402
from reprise.refit.delta import Delta  # noqa: E402
from reprise.refit.placement import placements as placements_module  # noqa: E402
from reprise.refit.placement.copy_plan import (  # noqa: E402
    ANY,
    LOADER,
    OVERWRITE,
    SKIPPED,
    Placement,
    apply_plan_,
    mixed,
    record_copy_plan,
)
from reprise.refit.placement.index_probe import probe_plan  # noqa: E402
from reprise.refit.placement.placements import PlanError, RunCopy, StridedCopy, View, nested, writer  # noqa: E402
from reprise.refit.placement.plan_check import compare_loads, random_tensor, verify_plan  # noqa: E402

BF16 = torch.bfloat16


def spec(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device="meta")


class Receiver:
    """Targets of the given shapes, and a loader that calls `rules[name](targets, tensor)`."""

    def __init__(self, rules, dtype=BF16, **shapes):
        self.parameters = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
        self.rules = rules

    def load(self, weights):
        for name, tensor in weights:
            self.rules[name](self.parameters, tensor)

    def targets(self):
        return dict(self.parameters)

    def plan(self, **specs):
        return record_copy_plan(self.load, self.targets, specs)


def modes(plan):
    return {name: place.mode for name, place in plan.placements.items()}


def copy_into(target, where=...):
    return lambda p, t: p[target][where].copy_(t)


# -- places ------------------------------------------------------------------------------------------------------------


@st.composite
def views(draw):
    """(canonical tensor of element numbers, view of it) by narrowing, stepping, permuting and reshaping."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    whole = torch.arange(int(np.prod(shape))).reshape(shape)
    view = whole
    for axis in range(len(shape)):
        first = draw(st.integers(0, view.shape[axis] - 1))
        step = draw(st.integers(1, 2))
        view = view.narrow(axis, first, draw(st.integers(1, view.shape[axis] - first)))
        view = view[(slice(None),) * axis + (slice(None, None, step),)]
    view = view.permute(draw(st.permutations(range(view.dim()))))
    if draw(st.booleans()):
        view = view.expand(draw(st.integers(1, 3)), *view.shape)
    return whole, view


@settings(max_examples=200, deadline=None)
@given(views(), st.data())
def test_a_copy_sends_each_index_where_pytorch_does(pair, data):
    whole, view = pair
    size = view.numel()
    storage = torch.full((2 * size + 3,), -1)
    order = data.draw(st.permutations(range(view.dim())))
    place = storage[1 : 1 + size].view([view.shape[d] for d in order]).permute(np.argsort(order).tolist())
    place.copy_(view)
    copy = StridedCopy("t", View.of(view), View.of(place))
    index = np.array(sorted(data.draw(st.sets(st.integers(0, whole.numel() - 1)))), np.int64)
    entries, at = copy.positions(index)
    found = np.full(len(storage), -1)
    found[at] = index[entries]
    assert found.tolist() == torch.where(torch.isin(storage, torch.from_numpy(index)), storage, -1).tolist()
    assert nested(copy.source)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_compiled_write_equals_numpys(op, transposed, monkeypatch):
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    for view in (View(0, (60,), (1,)), View(35, (4, 5), (12, 1)), View(1, (5, 4), (10, 2)), View(7, (5, 3), (0, 1))):
        strides = (
            (1, view.shape[0]) if transposed and len(view.shape) == 2 else np.cumprod((1, *view.shape[:0:-1]))[::-1]
        )
        copy = StridedCopy("t", view, View(3, view.shape, tuple(map(int, strides))))
        index = np.flatnonzero(rng.random(100) < 0.9)
        words = rng.integers(0, 65536, index.size).astype(np.uint16)
        flats = [np.arange(100, dtype=np.uint16) for _ in range(2)]
        writer(0)(copy, flats[0], index, words, op)
        monkeypatch.setattr(placements_module, "COMPILED_FROM", 0)
        writer(0)(copy, flats[1], index, words, op)
        monkeypatch.undo()
        assert (flats[0] == flats[1]).all() and (flats[0] != np.arange(100)).any()


@given(st.sets(st.integers(0, 200), max_size=60), st.randoms(use_true_random=False), st.sets(st.integers(0, 200)))
def test_runs_keep_any_placement(chosen, random, asked):
    index = np.array(sorted(chosen), np.int64)
    at = np.arange(3, 3 + 2 * index.size, 2)
    if random.random() < 0.5:
        at = np.array(random.sample(range(500), index.size), np.int64)
    runs = RunCopy.of("t", index, at)
    entries, found = runs.positions(np.array(sorted(asked), np.int64))
    where = dict(zip(index.tolist(), at.tolist(), strict=True))
    assert dict(zip(np.array(sorted(asked), np.int64)[entries].tolist(), found.tolist(), strict=True)) == {
        k: where[k] for k in asked if k in where
    }
    assert runs.elements == index.size


def test_a_contiguous_placement_is_one_run_and_a_transposed_one_a_few_a_row():
    assert len(RunCopy.of("t", np.arange(100), np.arange(7, 107)).starts) == 1
    transposed = np.arange(100).reshape(10, 10).T.reshape(-1)
    assert len(RunCopy.of("t", np.arange(100), transposed).starts) <= 20


@pytest.mark.parametrize(
    "view, expected",
    [
        (View(0, (3, 4), (4, 1)), True),
        (View(0, (3, 4), (1, 3)), True),
        (View(0, (3, 2), (0, 1)), True),  # repeats
        (View(0, (3, 4), (3, 1)), False),  # rows that share an element
        (View(0, (4, 3), (1, 1)), False),  # sliding windows
    ],
)
def test_nested_views(view, expected):
    assert nested(view) == expected


# -- which operations a name takes -------------------------------------------------------------------------------------


def test_views_of_one_dtype_take_any_operation():
    receiver = Receiver(
        {
            "a": copy_into("fused", slice(0, 2)),
            "b": lambda p, t: p["fused"][2:].copy_(t.t()),
            "c": lambda p, t: (p["twice"][0].copy_(t), p["twice"][1].copy_(t)),
            "unused": lambda p, t: None,
        },
        fused=(5, 4),
        twice=(2, 3),
    )
    plan = receiver.plan(a=spec(2, 4), b=spec(4, 3), c=spec(3), unused=spec(9))
    assert modes(plan) == {"a": ANY, "b": ANY, "c": ANY, "unused": SKIPPED}
    assert plan.invertible == {"a", "b", "c", "unused"}
    assert not receiver.parameters["fused"].any()  # recording copies nothing
    assert verify_plan(plan) == 3 * (20 + 6)


@pytest.mark.parametrize(
    "rule, reason",
    [
        (lambda p, t: p["t"].copy_(t), "bfloat16 to float32"),
        (lambda p, t: p["t"].copy_(t.float()), "bfloat16 to float32"),
        (lambda p, t: p["t"].copy_(t.float() * -3), "bfloat16 to float32"),
        (lambda p, t: p["t"].copy_(2 * t.float() + 5), "bfloat16 to float32"),
    ],
)
def test_a_cast_goes_through_the_loader(rule, reason):
    receiver = Receiver({"w": rule}, dtype=torch.float32, t=(6, 50))
    plan = receiver.plan(w=spec(6, 50))
    assert plan.placements["w"].mode == LOADER and plan.placements["w"].reason == reason
    verify_plan(plan)
    with pytest.raises(PlanError, match=r"'w': op='xor', expected 'overwrite' \(bfloat16 to float32\)"):
        apply_plan_(plan, mixed(random_delta(plan), {"w"}, "xor"))


def test_a_value_changed_before_its_copy_goes_through_the_loader():
    receiver = Receiver({"w": lambda p, t: p["t"].copy_(t.mul_(2))}, t=(4,))
    plan = receiver.plan(w=spec(4))
    assert plan.placements["w"].reason == "changed in place before it is copied"
    computed = Receiver({"w": lambda p, t: p["t"].copy_(t * 2)}, t=(4, 40)).plan(w=spec(4, 40))
    assert computed.placements["w"].reason == "computed"
    verify_plan(computed)


def test_bytes_that_two_names_write_take_overwrite_and_the_later_copy_wins():
    receiver = Receiver({"embed": copy_into("tied"), "head": copy_into("tied", slice(1, 3))}, tied=(4, 5))
    plan = receiver.plan(embed=spec(4, 5), head=spec(2, 5))
    assert modes(plan) == {"embed": OVERWRITE, "head": OVERWRITE}
    assert plan.placements["embed"].reason == "also written by head"
    assert [lost.tolist() for lost in plan.placements["embed"].lost] == [list(range(5, 15))]
    verify_plan(plan)
    with pytest.raises(PlanError, match="op='add', expected 'overwrite'"):
        apply_plan_(plan, mixed(random_delta(plan), {"embed", "head"}, "add"))


def test_interleaved_destinations_do_not_overlap_although_their_spans_do():
    receiver = Receiver({"a": copy_into("t", np.s_[:, ::2]), "b": copy_into("t", np.s_[:, 1::2])}, t=(3, 6))
    plan = receiver.plan(a=spec(3, 3), b=spec(3, 3))
    assert modes(plan) == {"a": ANY, "b": ANY}
    verify_plan(plan)
    late = Receiver({"a": copy_into("t", np.s_[:, ::2]), "b": copy_into("t", np.s_[:, 2:5])}, t=(3, 6))
    assert modes(late.plan(a=spec(3, 3), b=spec(3, 3))) == {"a": OVERWRITE, "b": OVERWRITE}


def test_tied_targets_share_one_storage():
    receiver = Receiver({"w": copy_into("head")}, head=(3, 4))
    receiver.parameters["embed"] = receiver.parameters["head"]
    plan = receiver.plan(w=spec(3, 4))
    assert modes(plan) == {"w": ANY}
    verify_plan(plan)


def test_a_record_of_tied_names_reaches_the_targets_of_each():
    receiver = Receiver({"embed": copy_into("t"), "head": copy_into("u")}, t=(3,), u=(3,))
    plan, old, new = receiver.plan(embed=spec(3), head=spec(3)), torch.zeros(3, dtype=BF16), torch.ones(3, dtype=BF16)
    tied = diff_bits({"embed": old, "head": old}, {"embed": new, "head": new})
    assert tied.tensors[0].aliases == ("head",)
    apply_plan_(plan, mixed(tied, plan.invertible, "xor"))
    assert receiver.parameters["t"].equal(new) and receiver.parameters["u"].equal(new)
    alone = Receiver({"head": copy_into("u")}, u=(3,))
    apply_plan_(alone.plan(head=spec(3)), tied)
    assert alone.parameters["u"].equal(new)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.float16, torch.float32, torch.int64])
def test_other_widths(dtype):
    receiver = Receiver({"w": lambda p, t: p["t"].copy_(t.t())}, dtype=dtype, t=(5, 40))
    verify_plan(receiver.plan(w=spec(40, 5, dtype=dtype)))


def test_special_bits_arrive_as_they_are():
    words = np.array([0x0000, 0x8000, 0x7FC0, 0x7FC1, 0xFFFF, 0x7F80, 0xFF81, 0x0001], np.uint16)
    receiver = Receiver({"w": copy_into("t")}, t=(8,))
    plan = receiver.plan(w=spec(8))
    for op in OPERATIONS:
        old, new = (torch.from_numpy(w.view(np.int16)).view(BF16) for w in (words[::-1].copy(), words))
        receiver.parameters["t"].copy_(old)
        apply_plan_(plan, mixed(diff_bits({"w": old}, {"w": new}), plan.invertible, op))
        assert as_bits(receiver.parameters["t"]).words.tolist() == words.tolist()


# -- what must be refused ----------------------------------------------------------------------------------------------


def in_thread(function):
    def run(*arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        thread.join()

    return run


def assign_data(p, t):
    p["t"].data = t.clone()


def replace_parameter(p, t):
    p["t"] = t.clone()


@pytest.mark.parametrize(
    "rule, message",
    [
        (lambda p, t: p["t"].index_put_((torch.arange(4),), t), "'t': the loader writes it by aten.index_put_.default"),
        (lambda p, t: p["t"].add_(t), "'t': the loader writes it by aten.add_.Tensor"),
        (lambda p, t: torch.add(t, 0, out=p["t"]), "'t': the loader writes it by aten.add.out"),
        (lambda p, t: torch._foreach_copy_([p["t"]], [t]), r"'t': the loader writes it by aten\._foreach_copy_"),
        (lambda p, t: p["t"].set_(t), "'t': the loader writes it by aten.set_"),
        (lambda p, t: p["t"].view(-1)[:2].zero_(), "'t': the loader writes it by aten.zero_"),
        (assign_data, "'t': the loader replaces it"),
        (replace_parameter, "'t': the loader replaces it"),
        (in_thread(copy_into("t")), "'t': no copy into it was seen; is it loaded by a thread or replaced?"),
        (lambda p, t: p["t"].copy_(torch.ones(4, 4)), "'t': copied from no canonical tensor"),
        (lambda p, t: p["t"].view(torch.int8)[:, :4].copy_(t), "'t': written as torch.int8"),
        (lambda p, t: p["t"].copy_(t * 0), "'w': the loader maps 0 and 1 to the same bits in 't', element 0"),
    ],
)
def test_a_loader_that_cannot_be_planned_is_refused(rule, message):
    with pytest.raises(PlanError, match=message):
        Receiver({"w": rule}, t=(4, 4)).plan(w=spec(4, 4))


def test_several_names_in_one_copy_are_refused():
    seen = {}

    def fuse(p, t):
        seen[len(seen)] = t
        if len(seen) == 2:
            p["t"].copy_(torch.cat([seen[0], seen[1]]))

    with pytest.raises(PlanError, match="'t': copied from a, b together"):
        Receiver({"a": fuse, "b": fuse}, t=(4, 4)).plan(a=spec(2, 4), b=spec(2, 4))


def test_a_report_that_differs_from_the_copies_is_refused():
    receiver = Receiver({"w": copy_into("t")}, t=(4,), u=(4,))
    with pytest.raises(PlanError, match="'u': no copy into it was seen"):
        receiver.plan(w=spec(4))
    del receiver.parameters["u"]
    with pytest.raises(PlanError, match="'t': reported and seen copies differ"):
        record_copy_plan(lambda w: receiver.load(w) or set(), receiver.targets, {"w": spec(4)})


def half_in_thread(p, t):
    p["t"][:2].copy_(t[:2])
    in_thread(copy_into("t", slice(2, 4)))(p, t[2:])


def half_through_numpy(p, t):
    p["t"][:2].copy_(t[:2])
    p["t"].view(torch.int16).numpy()[2:] = t.view(torch.int16).numpy()[2:]


def sorted_first(p, t):
    p["t"].copy_(t.view(torch.int16).flatten().sort().values.view(4, 4).view(BF16))


@pytest.mark.parametrize("rule", [half_in_thread, half_through_numpy, sorted_first])
def test_verification_finds_writes_that_the_dispatcher_does_not_see(rule):
    receiver = Receiver({"w": rule}, t=(4, 4))
    plan = receiver.plan(w=spec(4, 4))
    receiver.parameters["t"].fill_(7)
    with pytest.raises(PlanError, match="target 't': element "):
        verify_plan(plan)
    assert (receiver.parameters["t"] == 7).all()  # its bits are restored


@pytest.mark.parametrize("late", [assign_data, replace_parameter])
def test_verification_finds_a_parameter_that_a_later_load_replaces(late):
    receiver = Receiver({"w": copy_into("t")}, t=(4, 4))
    plan = receiver.plan(w=spec(4, 4))
    receiver.rules["w"] = lambda p, t: late(p, t)
    with pytest.raises(PlanError, match="'t': the loader replaces it"):
        verify_plan(plan)


def random_delta(plan, seed=0):
    rng = np.random.default_rng(seed)
    old, new = ({name: random_tensor(rng, each) for name, each in plan.specs.items()} for _ in range(2))
    return diff_bits(old, new)


def test_a_delta_that_does_not_fit_changes_nothing():
    receiver = Receiver({"a": copy_into("t"), "b": copy_into("u")}, t=(4,), u=(4,))
    plan = receiver.plan(a=spec(4), b=spec(4))
    good = random_delta(plan)
    for bad, message in (
        (diff_bits({"c": torch.zeros(4)}, {"c": torch.ones(4)}), "'c': unknown to the plan"),
        (diff_bits({"b": torch.zeros(4)}, {"b": torch.ones(4)}), r"'b': F32\(4,\) in the delta"),
        (
            diff_bits({"b": torch.zeros(5, dtype=BF16)}, {"b": torch.ones(5, dtype=BF16)}),
            r"'b': BF16\(5,\) in the delta",
        ),
    ):
        with pytest.raises(PlanError, match=message):
            apply_plan_(plan, Delta((*good.tensors[:1], *bad.tensors)))
    assert not receiver.parameters["t"].any()


@pytest.mark.parametrize("changed", [lambda t: t.t(), lambda t: t.float(), lambda t: t[:3]])
def test_a_target_that_is_laid_out_otherwise_by_now_is_refused(changed):
    receiver = Receiver({"w": copy_into("t")}, t=(4, 4))
    plan = receiver.plan(w=spec(4, 4))
    receiver.parameters["t"] = changed(receiver.parameters["t"])
    with pytest.raises(PlanError, match="'t': missing or laid out otherwise than planned"):
        apply_plan_(plan, random_delta(plan))


def test_two_records_of_one_tensor_are_refused():
    receiver = Receiver({"a": copy_into("t")}, t=(4,))
    plan = receiver.plan(a=spec(4))
    delta = random_delta(plan)
    with pytest.raises(PlanError, match="'a': two records in one delta"):
        apply_plan_(plan, Delta(delta.tensors * 2))


def test_a_loader_that_fails_midway_changes_nothing():
    receiver = Receiver({"a": copy_into("t"), "w": copy_into("u")}, dtype=torch.float32, t=(4,), u=(4,))
    plan = receiver.plan(a=spec(4, dtype=torch.float32), w=spec(4))

    def fail(p, t):
        raise RuntimeError("disk")

    receiver.rules["w"] = fail
    with pytest.raises(RuntimeError, match="disk"):
        apply_plan_(plan, random_delta(plan))
    assert not receiver.parameters["t"].any()


# -- broken on purpose -------------------------------------------------------------------------------------------------


def test_a_wrong_place_is_found():
    receiver = Receiver({"w": copy_into("t")}, t=(8,))
    plan = receiver.plan(w=spec(8))
    wrong = StridedCopy("t", View(0, (8,), (1,)), View(7, (8,), (-1,)))
    plan.placements["w"] = Placement(ANY, (wrong,), plan.placements["w"].lost)
    with pytest.raises(PlanError, match="target 't': element 0 is .* after xor by the plan"):
        verify_plan(plan)
    assert any(row["mismatches"] for row in compare_loads(plan))


# -- the index probe ---------------------------------------------------------------------------------------------------


def test_the_probe_reads_any_placement_back():
    held = {}

    def load(weights):
        held.update(
            fused=torch.cat([weights["b"].t(), weights["a"]]).contiguous(),
            flipped=weights["c"].flip(0),
            tail=weights["d"][3:].clone(),
        )
        return held

    specs = {"a": spec(2, 3), "b": spec(3, 4), "c": spec(5), "d": spec(9), "unused": spec(2)}
    plan = probe_plan(load, lambda: held, specs)
    assert modes(plan) == {"a": ANY, "b": ANY, "c": ANY, "d": ANY, "unused": SKIPPED}
    assert verify_plan(plan) == 3 * (18 + 5 + 6)


@pytest.mark.parametrize(
    "load, message",
    [
        (lambda w: {"t": 2 * w["a"]}, "'t': element 0 is .*it is computed or not loaded"),
        (lambda w: {"t": torch.cat([w["a"], torch.zeros(1, dtype=torch.float64)])}, "'t': element 4 is 0.0"),
        (lambda w: {"t": w["a"] + 0.5}, "'t': element 0 is 1099511627776.5"),
        (lambda w: {"t": w["a"].float()}, "'t': loaded as torch.float32"),
        (lambda w: {"t": torch.cat([w["a"], w["a"]])}, "'t': element 0 of 'a' is placed twice"),
    ],
)
def test_the_probe_refuses_what_is_no_placement(load, message):
    with pytest.raises(PlanError, match=message):
        probe_plan(load, dict, {"a": spec(4)})
