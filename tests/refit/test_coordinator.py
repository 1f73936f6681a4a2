"""A refit as a whole: joint commit, retries, late receivers, a source that restarts, and two coordinators at once."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from recovery import CHUNK, DENSE_A, MemoryObjectStore, copy, same, version
from recovery import memory as memory

from reprise.durable.faults import Faults, Killed
from reprise.labs.failover_experiments import Unsynced, failovers
from reprise.refit import Bits, RefitSchemaError
from reprise.refit.recovery.attempt import Attempt, FencedError
from reprise.refit.recovery.baseline import Baseline, BaselineLost, FileBaseline
from reprise.refit.recovery.commit_log import Commit, CommitConflict, ObjectCommitLog
from reprise.refit.recovery.coordinator import RefitCoordinator, RefitFailed
from reprise.refit.recovery.resident import ResidentStore

V = [version(seed) for seed in range(4)]
FIRST, RETRY = Attempt(1, 1, 0, 1, "xor"), Attempt(1, 2, 0, 1, "overwrite")


class Flaky:
    """A receiver that fails at call number `fail` of the protocol, before doing it or after, and then works."""

    def __init__(self, store, fail=None, after=False):
        self.store, self.fail, self.after, self.calls = store, fail, after, []

    def __getattr__(self, name):
        def call(*args):
            self.calls.append(name)
            fails = len(self.calls) - 1 == self.fail
            if fails and not self.after:
                raise ConnectionError(f"{name}: no answer")
            result = getattr(self.store, name)(*args)
            if fails:
                raise ConnectionError(f"{name}: no answer")
            return result

        return call


class Mortal:
    """A receiver whose process dies after `kill_at` steps and is restarted, from its disk, at the next call."""

    def __init__(self, folder, kill_at):
        self.folder, self.died = folder, False
        self.store = ResidentStore(folder, fs=Faults(folder, kill_at=kill_at))

    def __getattr__(self, name):
        def call(*args):
            try:
                return getattr(self.store, name)(*args)
            except Killed:
                self.store.close()
                self.store, self.died = ResidentStore(self.folder, fs=Unsynced()), True
                raise ConnectionError(f"{name}: the receiver died") from None

        return call


class Cluster:
    """A source at version 0, two receivers and a commit record; a payload a tensor."""

    def __init__(self, folder, kind="memory"):
        self.folder, self.kind = folder, kind
        self.stores = {name: ResidentStore.create(folder / name, V[0], fs=Unsynced()) for name in ("near", "far")}
        self.log = ObjectCommitLog.create(MemoryObjectStore(), "commit")
        if kind == "memory":
            self.baseline = Baseline(V[0], chunk=CHUNK)
        else:
            source = ResidentStore.create(folder / "source", V[0], fs=Unsynced())
            self.baseline = FileBaseline(source, fs=Unsynced(), chunk=CHUNK)

    def coordinator(self, receivers=None, **options):
        receivers = dict(self.stores) if receivers is None else receivers
        return RefitCoordinator.take_over(self.log, self.baseline, receivers, payload_bytes=DENSE_A, **options)

    def holds(self, number, weights) -> bool:
        stores = self.stores.values()
        return (
            self.log.read().version == self.baseline.version == number
            and same(self.baseline.tensors(), weights)
            and all(same(store.tensors(), weights) and store.status().version == number for store in stores)
        )

    def close(self):
        for store in self.stores.values():
            store.close()
        if self.kind == "file":
            self.baseline.store.close()


@pytest.fixture(params=["memory", "file"])
def cluster(request, memory):
    cluster = Cluster(memory, request.param)
    yield cluster
    cluster.close()


# -- one coordinator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["xor", "add"])
def test_versions_follow_each_other_bit_for_bit(cluster, op):
    coordinator = cluster.coordinator(op=op)
    for number in (1, 2, 3):
        assert coordinator.refit(V[number]) == Commit(number, 1)
        assert cluster.holds(number, V[number])
    assert coordinator.refit(V[3]) == Commit(4, 1)  # nothing changed, and that is a version too


def test_the_commit_comes_after_all_receivers_and_before_the_baseline(cluster):
    steps = list(cluster.coordinator().steps(V[1]))
    assert steps == [
        "baseline: begun",
        *[f"near: {what}" for what in ("at version 0", "begun", "payload 0 applied", "payload 1 applied", "checked")],
        *[f"far: {what}" for what in ("at version 0", "begun", "payload 0 applied", "payload 1 applied", "checked")],
        "committed",
        "baseline: moved",
        "near: told",
        "far: told",
    ]


@pytest.mark.parametrize("after", [False, True])
def test_a_receiver_that_fails_once_at_any_call_is_retried_to_the_same_bits(memory, after):
    dry = Cluster(memory / "dry")
    counting = Flaky(dry.stores["near"])
    dry.coordinator({"near": counting, "far": dry.stores["far"]}).refit(V[1])
    dry.close()
    assert len(counting.calls) == 7
    for k, name in enumerate(counting.calls):
        cluster = Cluster(memory / f"{k}")
        coordinator = cluster.coordinator(
            {"near": Flaky(cluster.stores["near"], k, after), "far": cluster.stores["far"]}
        )
        steps = list(coordinator.steps(V[1]))
        assert sum(step.startswith("stopped") for step in steps) == (name != "commit" and k > 0)
        if name != "commit" or after:
            assert cluster.holds(1, V[1]), name
        assert coordinator.refit(V[2]) == Commit(2, 1) and cluster.holds(2, V[2])
        cluster.close()


def test_a_receiver_that_dies_at_any_byte_is_retried_to_the_same_bits(memory):
    with ResidentStore.create(memory / "near", V[0], fs=Unsynced()):
        pass
    deaths = 0
    for kill_at in range(0, 2400, 31):
        baseline, log = Baseline(V[0], chunk=CHUNK), ObjectCommitLog.create(MemoryObjectStore(), "commit")
        victim = Mortal(copy(memory / "near", memory / "victim"), kill_at)
        coordinator = RefitCoordinator.take_over(log, baseline, {"near": victim}, payload_bytes=DENSE_A)
        assert coordinator.refit(V[1]) == Commit(1, 1)
        deaths += victim.died
        assert coordinator.refit(V[2]) == Commit(2, 1)
        assert same(victim.store.tensors(), V[2]) and same(baseline.tensors(), V[2])
        victim.store.close()
    assert 40 < deaths < 78


def test_when_all_attempts_fail_nothing_is_committed_and_the_next_refit_is_exact(cluster):
    class Dead:
        def __getattr__(self, name):
            raise ConnectionError("gone")

    coordinator = cluster.coordinator({**cluster.stores, "dead": Dead()})
    with pytest.raises(RefitFailed, match="failed as all 3 did: gone"):
        coordinator.refit(V[1])
    assert cluster.log.read() == Commit(0, 1) and same(cluster.baseline.tensors(), V[0])
    for store in cluster.stores.values():
        with pytest.raises(FencedError):
            store.begin(Attempt(1, 3, 0, 1, "overwrite"))  # the last one was stopped as well
    del coordinator.receivers["dead"]
    assert coordinator.refit(V[2]) == Commit(1, 1)  # even with other bits than those that were applied
    assert cluster.holds(1, V[2])


def test_wrong_bits_in_a_receiver_are_found_and_mended(cluster):
    (path,) = cluster.stores["far"].folder.glob("*.safetensors")
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 64
    path.write_bytes(raw)
    assert cluster.coordinator().refit(V[1]) == Commit(1, 1)
    assert cluster.holds(1, V[1])


def test_a_check_that_fails_keeps_the_version_back(cluster, monkeypatch):
    monkeypatch.setattr(ResidentStore, "check", lambda *args: "0" * 32)
    with pytest.raises(RefitFailed, match="bits of fingerprint 0{32}, expected"):
        cluster.coordinator().refit(V[1])
    assert cluster.log.read() == Commit(0, 1) and cluster.baseline.version == 0


def test_other_tensors_than_the_baselines_are_refused_before_anything_is_sent(cluster):
    receivers = {name: Flaky(store) for name, store in cluster.stores.items()}
    coordinator = cluster.coordinator(receivers)
    with pytest.raises(RefitSchemaError, match="tensor 'b'"):
        coordinator.refit({name: bits for name, bits in V[1].items() if name != "b"})
    assert all(set(receiver.calls) <= {"status"} for receiver in receivers.values())


def test_a_record_whose_answer_is_lost_is_written_again(cluster):
    exchange, failures = cluster.log.compare_and_set, [OSError("timeout"), OSError("timeout")]

    def lossy(expected, new, writer):
        exchange(expected, new, writer)
        if new.version > expected.version and failures:
            raise failures.pop()

    coordinator = cluster.coordinator()
    cluster.log.compare_and_set = lossy
    assert coordinator.refit(V[1]) == Commit(1, 1) and cluster.holds(1, V[1])
    failures += [OSError("timeout")] * 9
    with pytest.raises(OSError):  # committed, but the coordinator cannot know
        coordinator.refit(V[2])
    failures.clear()
    assert coordinator.refit(V[3]) == Commit(3, 1) and cluster.holds(3, V[3])


# -- late receivers ----------------------------------------------------------------------------------------------------


def test_a_new_receiver_and_one_that_missed_versions_get_a_dense_load(cluster, memory):
    coordinator = cluster.coordinator()
    late = cluster.stores.pop("far")
    del coordinator.receivers["far"]
    coordinator.refit(V[1])
    coordinator.refit(V[2])
    new = ResidentStore.create(memory / "new", V[3], 99, fs=Unsynced())
    cluster.stores |= {"far": late, "new": new}
    for name in ("far", "new"):
        coordinator.admit(name, cluster.stores[name])
    assert cluster.holds(2, V[2])
    coordinator.refit(V[3])
    assert cluster.holds(3, V[3])


def test_a_receiver_that_only_missed_the_news_is_told_without_a_dense_load(cluster):
    coordinator = cluster.coordinator()
    steps = coordinator.steps(V[1])
    while next(steps) != "committed":
        pass
    del steps  # the coordinator is gone, the receivers hold everything
    receivers = {name: Flaky(store) for name, store in cluster.stores.items()}
    successor = cluster.coordinator(receivers)
    for name, receiver in list(receivers.items()):
        successor.admit(name, receiver)
        assert receiver.calls == ["status", "fingerprint", "commit"]
    assert cluster.holds(1, V[1])


# -- failover ----------------------------------------------------------------------------------------------------------


def test_a_coordinator_that_was_replaced_is_fenced_everywhere(cluster):
    old = cluster.coordinator()
    new = cluster.coordinator()
    with pytest.raises(FencedError, match="generation 1"):
        old.refit(V[1])
    with pytest.raises(FencedError):
        old.admit("near", cluster.stores["near"])
    assert new.refit(V[2]) == Commit(1, 2) and cluster.holds(1, V[2])


def test_a_coordinator_that_only_the_receivers_refuse_stops_at_once(cluster):
    steps = cluster.coordinator().steps(V[1])
    done = list(islice(steps, 2))
    successor = RefitCoordinator.take_over(cluster.log, Baseline(V[0], chunk=CHUNK), cluster.stores)
    list(islice(successor.steps(V[2]), 3))
    with pytest.raises(FencedError, match="expected one after 2.1"):
        done += steps
    assert not any(step.startswith("stopped") for step in done)


def test_of_two_takeovers_of_one_record_one_fails(cluster):
    record = cluster.log.read()
    cluster.coordinator()
    cluster.log.read = lambda: record  # as it was when the slower one looked
    with pytest.raises(CommitConflict):
        cluster.coordinator()


@pytest.mark.parametrize("same_weights, every", [(True, 2), (False, 3)])
def test_every_order_of_two_coordinators_ends_consistent(same_weights, every):
    rows = failovers(same=same_weights, every=every)
    assert all(row["consistent"] for row in rows)
    outcomes = Counter((row["old_outcome"], row["commits"]) for row in rows)
    assert outcomes.keys() == {("fenced", 1), ("committed", 2)}


def test_without_the_comparison_the_coordinators_overrun_each_other():
    # the placebo: the same schedules on a record that anyone overwrites
    rows = failovers(blind=True, every=3)
    assert any(row["commits"] == 2 and row["version"] == 1 for row in rows)


@pytest.mark.parametrize("weights", [1, 2])
def test_a_source_that_restarts_after_any_action_loses_nothing(memory, weights):
    for actions in range(17):
        cluster = Cluster(memory / f"{actions}-{weights}", "file")
        steps = cluster.coordinator().steps(V[1])
        done = list(islice(steps, actions))
        cluster.baseline.store.close()
        cluster.baseline = FileBaseline(ResidentStore(memory / f"{actions}-{weights}" / "source"), chunk=CHUNK)
        coordinator = cluster.coordinator()
        committed = "committed" in done
        assert cluster.baseline.version == committed
        assert same(cluster.baseline.tensors(), V[committed])
        assert coordinator.refit(V[weights]).version == 1 + committed
        assert cluster.holds(1 + committed, V[weights])
        cluster.close()


# -- the baseline ------------------------------------------------------------------------------------------------------


def baselines(memory, kind):
    if kind == "memory":
        return Baseline(V[0], chunk=CHUNK)
    return FileBaseline(ResidentStore.create(memory / "b", V[0], fs=Unsynced()), fs=Unsynced(), chunk=CHUNK)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_baseline_moves_at_the_commit_and_only_then(memory, kind):
    baseline = baselines(memory, kind)
    delta = baseline.begin(V[1], FIRST)
    assert same(baseline.tensors(), V[0]) and baseline.version == 0
    again = baseline.begin(V[1], RETRY)
    for one, other in zip(delta.tensors, again.tensors, strict=True):
        assert np.array_equal(one.index, other.index) and np.array_equal(one.words, other.words)
    with pytest.raises((FencedError, BaselineLost)):
        baseline.commit(FIRST)
    with pytest.raises(FencedError):
        baseline.begin(V[1], FIRST)
    assert same(baseline.tensors(), V[0])
    baseline.abort(FIRST)  # not the pending one
    baseline.commit(RETRY)
    baseline.commit(RETRY)
    assert same(baseline.tensors(), V[1]) and baseline.version == 1
    with pytest.raises((FencedError, ValueError)):
        baseline.begin(V[2], RETRY)
    baseline.recover(1)
    with pytest.raises(BaselineLost, match="version 1"):
        baseline.recover(2)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("committed", [0, 1])
def test_a_pending_change_is_settled_by_the_commit_record(memory, kind, committed):
    baseline = baselines(memory, kind)
    baseline.begin(V[1], FIRST)
    baseline.recover(committed)
    assert baseline.version == committed and same(baseline.tensors(), V[committed])


def test_an_aborted_change_cannot_be_committed(memory):
    for kind in ("memory", "file"):
        baseline = baselines(memory / kind, kind)
        baseline.begin(V[1], FIRST)
        baseline.abort(FIRST)
        with pytest.raises((FencedError, BaselineLost)):
            baseline.commit(FIRST)
        assert same(baseline.tensors(), V[0])


def test_tied_tensors_stay_tied_in_memory():
    words = V[0]["a"].words.copy()
    old = {"embed": Bits("BF16", (300,), words), "head": Bits("BF16", (300,), words)}
    new = {"embed": V[1]["a"], "head": V[1]["a"]}
    baseline = Baseline(old, chunk=CHUNK)
    delta = baseline.begin(new, FIRST)
    assert [(r.name, r.aliases) for r in delta.tensors] == [("embed", ("head",))]
    baseline.commit(FIRST)
    assert same(baseline.tensors(), new) and (words == V[0]["a"].words).all()


def test_a_baseline_that_dies_at_any_byte_of_the_commit_rolls_forward(memory):
    with ResidentStore.create(memory / "b", V[0], fs=Unsynced()) as store:
        FileBaseline(store, fs=Unsynced(), chunk=CHUNK).begin(V[1], FIRST)

    def commit(folder, fs):
        with ResidentStore(folder, fs=fs) as store:
            FileBaseline(store, fs=fs, chunk=CHUNK).commit(FIRST)

    dry = Faults(copy(memory / "b", memory / "dry"))
    commit(memory / "dry", dry)
    for n in range(0, dry.steps, 3):
        victim = copy(memory / "b", memory / "v")
        with pytest.raises(Killed):
            commit(victim, Faults(victim, kill_at=n))
        with ResidentStore(victim, fs=Unsynced()) as store:
            baseline = FileBaseline(store, fs=Unsynced(), chunk=CHUNK)
            baseline.recover(1)
            assert baseline.version == 1 and same(baseline.tensors(), V[1])
            delta = baseline.begin(V[2], Attempt(2, 1, 1, 2, "xor"))
            assert delta.changed == sum((V[1][k].words != V[2][k].words).sum() for k in V[1])
    for k, cut in enumerate(dry.power_cuts(limit=32)):
        with ResidentStore(cut.restore(memory / f"cut{k}"), fs=Unsynced()) as store:
            baseline = FileBaseline(store, fs=Unsynced(), chunk=CHUNK)
            baseline.recover(1)
            assert same(baseline.tensors(), V[1])
