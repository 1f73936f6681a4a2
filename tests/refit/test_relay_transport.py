"""The relay tree: its shape and messages, what every receiver gets, back-pressure, the gate, and what may fail."""

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
import zmq
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recovery import DELTA, NEW, OLD
from recovery import memory as memory
from transport_cases import HOST, QUICK, TIMEOUT, Recorder, Tree, attempt, numbered, tree

from reprise.errors import RepriseError
from reprise.labs.failover_experiments import Unsynced
from reprise.labs.gate_experiments import waits
from reprise.labs.seaweed import free_ports
from reprise.labs.transport_experiments import summary, transfers
from reprise.labs.transport_faults import interrupted, payloads, world
from reprise.labs.wan import Wan
from reprise.refit.cli import cli
from reprise.refit.frame import Limits
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.resident import ResidentStore
from reprise.refit.transport.common import ReceiverFailed, TransportError, TransportTimeout
from reprise.refit.transport.gate import RequestGate
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.relay_messages import FIELDS, HEADER_BYTES, Message, MessageError, parse
from reprise.refit.transport.relay_node import RelayNode
from reprise.refit.transport.relay_transport import RelayTransport
from reprise.refit.transport.relay_tree import children, height, rotated

A, B = attempt(1), attempt(2, "overwrite")


def transport(held, **options):
    return RelayTransport(held.addresses, **{"timeout": TIMEOUT, **options})


# -- the tree ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count, root, expected",
    [
        (1, 0, {0: ()}),
        (3, 0, {0: (1, 2), 1: (), 2: ()}),
        (6, 2, {2: (3, 4), 3: (5, 0), 4: (1,), 5: (), 0: (), 1: ()}),
    ],
)
def test_receiver_i_of_the_order_feeds_2i_plus_1_and_2i_plus_2(count, root, expected):
    members = rotated(range(count), root)
    assert {node: children(members, node) for node in members} == expected


@pytest.mark.parametrize("count", range(1, 40))
def test_everyone_but_the_root_is_fed_once(count):
    for root in range(count):
        members = rotated(range(count), root)
        fed = [child for node in members for child in children(members, node)]
        assert sorted(fed) == sorted(set(range(count)) - {root})
        assert height(members, root) == count.bit_length() - 1


def test_a_root_that_is_no_receiver_is_refused():
    with pytest.raises(TransportError, match="^root=3: expected one of"):
        rotated([0, 1, 2], 3)


# -- messages ----------------------------------------------------------------------------------------------------------

MESSAGES = [
    Message("open", (1, 1), {"seq": 0, "attempt": A.dump(), "members": [2, 0], "mode": "async"}),
    Message("payload", (1, 1), {"seq": 1, "number": 0}, b"bytes"),
    Message("apply", (1, 1), {"seq": 2, "number": 0}),
    Message("check", (1, 1), {"seq": 3, "payloads": 1}),
    Message("commit", (1, 1), {"seq": 4}),
    Message("stop", (1, 1)),
    Message("ack", (1, 1), {"seq": 3, "fingerprints": {"0": "ab", "12": "cd"}}),
    Message("failed", (1, 1), {"node": 2, "reason": "no \u20ac"}),
]
ID = [message.kind for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=ID)
def test_parse_is_the_inverse_of_pack(message):
    assert parse(message.pack(), 5) == message
    assert {m.kind for m in MESSAGES} == set(FIELDS)


@pytest.mark.parametrize("message", MESSAGES, ids=ID)
def test_a_message_without_or_beyond_its_fields_is_refused(message):
    head, body = message.pack()
    fields = json.loads(head)
    wrong = [(name, value) for name in fields for value in (None, -1, 1.5, True, [[]], {}, "\0", 1 << 60)]
    allowed = (("fingerprints", {}), ("reason", "\0"))
    changed = [{k: v for k, v in fields.items() if k != name} for name in fields] + [fields | {"more": 1}]
    changed += [fields | {name: value} for name, value in wrong if (name, value) not in allowed]
    for each in changed:
        with pytest.raises(MessageError):
            parse([json.dumps(each).encode(), body], 5)
    with pytest.raises(MessageError, match="body"):
        parse([head, b"" if body else b"x"], 5)


@pytest.mark.parametrize(
    "kind, change",
    [
        ("open", {"members": []}),
        ("open", {"members": [1, 1]}),
        ("open", {"members": list(range(5000))}),
        ("open", {"mode": "soon"}),
        ("open", {"order": [1, 2]}),
        ("open", {"attempt": A.dump() | {"op": "copy"}}),
        ("open", {"attempt": A.dump() | {"target_version": 7}}),
        ("ack", {"fingerprints": {"00": "ab"}}),
        ("ack", {"fingerprints": {"1": "a b"}}),
        ("failed", {"reason": "x" * 501}),
    ],
)
def test_a_value_out_of_range_is_refused(kind, change):
    head, body = MESSAGES[ID.index(kind)].pack()
    with pytest.raises(MessageError, match=f"^{kind}: "):
        parse([json.dumps(json.loads(head) | change).encode(), body], 5)


@pytest.mark.parametrize(
    "frames", [[], [b"{}"], [b"{}", b"", b""], [b"x" * (HEADER_BYTES + 1), b""], [b"{}", b"123456"]]
)
def test_the_number_and_the_size_of_frames_are_bounded(frames):
    with pytest.raises(MessageError, match="^message: "):
        parse(frames, 5)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), st.binary(max_size=8))
@example(b"[" * 9999, b"")
@example(b'{"kind": []}', b"")
def test_any_other_bytes_are_refused(head, body):
    with pytest.raises(MessageError):
        parse([head, body], 5)


@settings(max_examples=200)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_any_field_replaced_is_refused_or_in_range(message, data):
    head, body = message.pack()
    fields = json.loads(head)
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JSON | st.sampled_from(list(fields.values())))
    try:
        parse([json.dumps(fields).encode(), body], 5).pack()
    except MessageError:
        pass


# -- a transfer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fan", ["tree", "star"])
def test_every_receiver_gets_every_payload_in_order(fan, mode):
    weights, sent = [Recorder() for _ in range(6)], numbered(DELTA, A, 7)
    with tree(*weights) as held, transport(held, fan=fan, window=2) as source:
        assert source.broadcast(A, iter(sent), mode=mode) == {i: "held.7" for i in range(6)}
        source.commit(A)
    assert [w.held for w in weights] == [sent] * 6
    assert all(w.calls == ["begin", *["deliver"] * 7, "check", "commit"] for w in weights)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_attempt_without_payloads_is_one_too(mode):
    with tree(Recorder(), Recorder()) as held, transport(held) as source:
        assert source.broadcast(A, [], mode=mode) == {0: "held.0", 1: "held.0"}


def test_the_root_changes_from_attempt_to_attempt_and_some_receivers_may_be_left_out():
    weights = [Recorder() for _ in range(4)]
    with ExitStack() as stack:
        held = stack.enter_context(tree(*weights))
        wans = [stack.enter_context(Wan()) for _ in weights]
        entries = [f"tcp://{HOST}:{wan.enter(port, 'rollout')}" for wan, port in zip(wans, held.ports, strict=True)]
        source = stack.enter_context(RelayTransport(entries, timeout=TIMEOUT))
        roots = []
        for number in range(1, 5):
            before = [wan.crossed("rollout") for wan in wans]
            source.broadcast(attempt(number), numbered(DELTA, attempt(number), 2))
            roots.append([wan.crossed("rollout") > b for wan, b in zip(wans, before, strict=True)].index(True))
        source.broadcast(attempt(5), [], receivers=[1, 3])
    assert roots == [1, 2, 3, 0]
    assert [w.calls.count("check") for w in weights] == [4, 5, 4, 5]


def test_the_payload_crosses_once_over_the_tree_and_once_a_receiver_over_the_star():
    """The claim and its placebo, in bytes that cannot go another way."""
    rows = transfers(3, receivers=(1, 3), elements=1 << 18, rate=2e6)
    for row in rows:
        times = 1 if row["transport"] == "relay" else row["receivers"]
        assert row["exact"] and times <= row["crossed"] < times * (1 + 5000 / row["payload_bytes"])
    one, three = summary(rows)
    assert three["exact"] and three["relay_crossed"] < 1.3 < 3 <= min(three["star_crossed"], three["store_crossed"])
    assert {"store_over_relay", "store_over_star"} <= one.keys() & three.keys()


# -- back-pressure -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3])
def test_a_slow_leaf_holds_the_source_back(window):
    go, ahead = threading.Event(), []
    weights = [Recorder(), Recorder(), Recorder(deliver=lambda _: go.wait(5))]

    def source_of_payloads():
        for k, payload in enumerate(numbered(DELTA, A, 10)):
            ahead.append(k)
            yield payload

    with tree(*weights, window=window) as held, transport(held, window=window) as source:
        thread = threading.Thread(target=source.broadcast, args=(A, source_of_payloads()), kwargs={"root": 0})
        thread.start()
        time.sleep(0.4)
        # the "open" is answered, `window` payloads are not, and one more is made and waits
        assert len(ahead) == window + 1 and len(weights[0].held) <= window
        go.set()
        thread.join(10)
    assert [len(w.held) for w in weights] == [10] * 3


def test_a_node_holds_no_more_than_its_window_whatever_the_source_does():
    go = threading.Event()
    weights = [Recorder(), Recorder(deliver=lambda _: go.wait(5))]
    with tree(*weights, window=2) as held, transport(held, window=100) as source:
        thread = threading.Thread(target=source.broadcast, args=(A, numbered(DELTA, A, 50)), kwargs={"root": 0})
        thread.start()
        time.sleep(0.4)
        assert len(weights[0].held) <= 3
        go.set()
        thread.join(10)
    assert [len(w.held) for w in weights] == [50] * 2


# -- the gate ----------------------------------------------------------------------------------------------------------


def test_asynchronous_payloads_are_staged_while_requests_run_and_applied_behind_the_gate():
    gate, seen = RequestGate(), []
    weights = Recorder(deliver=lambda _: seen.append((gate.is_open, gate.running)))

    def with_requests():
        for payload in numbered(DELTA, A, 3):
            with gate.request(timeout=1):
                yield payload
        assert weights.held == []

    with tree(weights, gates=[gate]) as held, transport(held) as source:
        source.broadcast(A, with_requests(), mode="async")
        assert seen == [(False, 0)] * 3 and not gate.is_open
        with pytest.raises(TransportTimeout, match="^request gate: not open"), gate.request(timeout=0.05):
            pass
        source.commit(A)
        with gate.request(timeout=1):
            assert gate.is_open


def test_requests_go_on_here_until_everything_is_staged_elsewhere():
    staged, gate = threading.Event(), RequestGate()

    class Slow(Intake):
        def accept(self, number, payload):
            assert number == 0 or staged.wait(5)
            super().accept(number, payload)

    with ExitStack() as stack:
        held = Tree([Intake(Recorder(), gate), Slow(Recorder())])
        stack.callback(held.close)
        source = stack.enter_context(transport(held, fan="star", window=9))
        thread = threading.Thread(target=source.broadcast, args=(A, numbered(DELTA, A, 2)), kwargs={"mode": "async"})
        thread.start()
        time.sleep(0.3)
        assert gate.is_open
        staged.set()
        thread.join(10)
        assert not gate.is_open


def test_a_running_request_delays_the_apply():
    gate, weights = RequestGate(), Recorder()
    with tree(weights, gates=[gate]) as held, transport(held) as source:
        request = gate.request()
        request.__enter__()
        ended = threading.Timer(0.2, request.__exit__, (None, None, None))
        ended.start()
        start = time.monotonic()
        source.broadcast(A, numbered(DELTA, A, 2), mode="async")
        ended.join()
    assert len(weights.held) == 2 and time.monotonic() - start > 0.15


def test_a_request_that_never_ends_fails_the_attempt_and_the_gate_opens_again():
    gate, weights = RequestGate(), Recorder()
    with tree(weights, gates=[gate], gate_timeout=0.1) as held, transport(held) as source:
        with gate.request(), pytest.raises(ReceiverFailed, match="receiver 0: request gate: 1 requests run"):
            source.broadcast(A, numbered(DELTA, A, 2), mode="async")
        assert gate.is_open and weights.held == []


def test_after_a_failed_apply_requests_stay_shut_out_until_a_retry_is_committed():
    fail = [True]

    def second_fails(_):
        if len(weights.held) == 1 and fail.pop():
            raise OSError("disk full")

    gate, weights = RequestGate(), Recorder(deliver=second_fails)
    with tree(weights, gates=[gate]) as held, transport(held) as source:
        with pytest.raises(ReceiverFailed, match="receiver 0: disk full"):
            source.broadcast(A, numbered(DELTA, A, 3))
        assert not gate.is_open
        fail.append(False)
        source.broadcast(B, numbered(DELTA, B, 3))
        assert not gate.is_open
        source.commit(B)
        assert gate.is_open


def test_a_restarted_receiver_with_an_open_attempt_starts_behind_a_closed_gate(memory):
    with ResidentStore.create(memory / "s", OLD, fs=Unsynced()) as store:
        assert Intake(store).gate.is_open
        store.begin(Attempt(1, 1, 0, 1, "xor"))
        assert not Intake(store).gate.is_open


def test_what_is_staged_is_bounded_and_forgotten_with_its_attempt():
    sent = numbered(DELTA, A, 3)
    intake = Intake(Recorder(), staged_bytes=sum(map(len, sent)) - 1)
    intake.begin(A, "async")
    intake.accept(0, sent[0])
    intake.accept(1, sent[1])
    with pytest.raises(TransportError, match="^staged: "):
        intake.accept(2, sent[2])
    intake.begin(B, "async")
    with pytest.raises(TransportError, match="^payload 0: not staged"):
        intake.apply(0)
    with pytest.raises(RepriseError, match="^mode="):
        intake.begin(attempt(3), "later")


def test_requests_wait_for_a_synchronous_refit_and_hardly_for_an_asynchronous_one():
    synchronous, asynchronous = waits(1, elements=1 << 20, rate=2e5)
    assert synchronous["share_shut"] > 0.5 and synchronous["longest_wait"] > asynchronous["longest_wait"]
    assert asynchronous["served"] > synchronous["served"]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_dead_leaf_is_named_and_the_retry_without_it_goes_through():
    weights = [Recorder() for _ in range(4)]
    with tree(*weights, timeout=QUICK) as held, transport(held, timeout=QUICK) as source:
        held.stop(3)  # below 1, which is below 0
        with pytest.raises(ReceiverFailed, match="receiver 3: no answer within 1 s") as caught:
            source.broadcast(A, numbered(DELTA, A, 3), root=0)
        assert caught.value.receiver == 3
        assert source.broadcast(B, numbered(DELTA, B, 3), receivers=[0, 1, 2]) == {i: "held.3" for i in range(3)}


def test_a_dead_root_is_a_timeout_and_the_next_attempt_has_another_root():
    weights = [Recorder() for _ in range(3)]
    with tree(*weights, timeout=QUICK) as held, transport(held, timeout=QUICK) as source:
        held.stop(1)
        with pytest.raises(ReceiverFailed, match="receiver 1") as caught:
            source.broadcast(A, numbered(DELTA, A, 2))  # attempt 1 starts at receiver 1
        assert isinstance(caught.value, TransportTimeout)
        held.start(1, Intake(weights[1]))
        assert len(source.broadcast(B, numbered(DELTA, B, 2))) == 3


def test_a_root_that_restarts_in_the_middle_fails_the_attempt_and_takes_part_in_the_next():
    weights = [Recorder() for _ in range(3)]

    def restarting():
        for k, payload in enumerate(numbered(DELTA, A, 6)):
            if k == 3:
                held.stop(0)
                held.start(0, Intake(weights[0]))
            yield payload

    with tree(*weights, timeout=QUICK) as held, transport(held, timeout=QUICK, window=2) as source:
        with pytest.raises(ReceiverFailed, match="receiver 0: (no such attempt is open here|no answer)"):
            source.broadcast(A, restarting(), root=0)
        assert source.broadcast(B, numbered(DELTA, B, 6), root=0) == {i: "held.6" for i in range(3)}


def test_an_error_of_a_receiver_reaches_the_source_and_stops_the_others():
    def refuse(_):
        raise RepriseError("no room")

    weights = [Recorder(), Recorder(), Recorder(), Recorder(deliver=refuse)]
    with tree(*weights) as held, transport(held) as source:
        with pytest.raises(ReceiverFailed, match="^receiver 3: no room$"):
            source.broadcast(A, numbered(DELTA, A, 9), root=0)
        give_up = time.monotonic() + 5
        while not all("stop" in w.calls for w in weights) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert all("stop" in w.calls and "check" not in w.calls for w in weights)
        with pytest.raises(TransportError, match="expected the attempt that was broadcast last"):
            source.commit(A)


def test_an_error_of_the_source_stops_the_receivers():
    weights = Recorder()

    def breaking():
        yield numbered(DELTA, A, 1)[0]
        raise KeyError("encoder")

    with tree(weights) as held, transport(held) as source:
        with pytest.raises(KeyError):
            source.broadcast(A, breaking())
        give_up = time.monotonic() + 5
        while "stop" not in weights.calls and time.monotonic() < give_up:
            time.sleep(0.01)
    assert weights.calls[-1] == "stop"


def test_an_older_attempt_is_refused_by_the_nodes():
    with tree(Recorder(), Recorder()) as held, transport(held) as source:
        source.broadcast(B, [])
        with pytest.raises(ReceiverFailed, match="expected one after 1.2"):
            source.broadcast(A, [])


@pytest.mark.parametrize("wrong", ["altered", "other attempt", "other number"])
def test_a_payload_that_is_not_the_announced_one_is_refused(wrong):
    sent, other = numbered(DELTA, A, 2), numbered(DELTA, B, 2)
    payload = {"altered": sent[1][:-1] + b"\0", "other attempt": other[1], "other number": sent[0]}[wrong]
    weights = [Recorder(), Recorder()]
    with tree(*weights) as held, transport(held) as source:
        with pytest.raises(ReceiverFailed):
            source.broadcast(A, [sent[0], payload])
    assert all(len(w.held) <= 1 for w in weights)


def test_strangers_neither_disturb_a_node_nor_learn_anything():
    """Malformed messages, messages of no attempt, and ones above the limit, while a transfer is on its way."""
    weights = [Recorder(), Recorder()]
    context = zmq.Context()
    with tree(*weights, limits=Limits(frame_bytes=1 << 20)) as held, transport(held, window=1) as source:
        stranger = context.socket(zmq.DEALER)
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(held.addresses[0])

        def disturbed():
            for payload in numbered(DELTA, A, 3):
                for frames in ([b"\x80\x04pickle"], [b"{}", b""], [b"[" * 999, b"x"], Message("stop", A.order).pack()):
                    stranger.send_multipart(frames)
                for message in MESSAGES[1:5]:
                    stranger.send_multipart(message.pack())
                stranger.send_multipart([b"{}", bytes((1 << 20) + 1)])
                time.sleep(0.05)
                yield payload

        assert source.broadcast(A, disturbed(), root=0) == {0: "held.3", 1: "held.3"}
        stranger.close()
        # a fresh connection: the oversized messages cost the first one its own, and what was queued on it
        stranger = context.socket(zmq.DEALER)
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(held.addresses[0])
        stranger.send_multipart(Message("commit", (7, 7), {"seq": 0}).pack())
        assert stranger.poll(20_000) and parse(stranger.recv_multipart(), 0).kind == "failed"
        stranger.close()
    context.term()


@pytest.mark.parametrize("seqs", [[1], [0, 2], [0, 1, 1]])
def test_a_message_that_was_lost_or_comes_twice_ends_the_attempt(seqs):
    weights, sent = Recorder(), numbered(DELTA, A, 3)
    context = zmq.Context()
    with tree(weights) as held:
        raw = context.socket(zmq.DEALER)
        raw.connect(held.addresses[0])
        for seq in seqs:
            if seq == seqs[0]:
                message = Message("open", A.order, {"seq": seq, "attempt": A.dump(), "members": [0], "mode": "sync"})
            else:
                message = Message("payload", A.order, {"seq": seq, "number": seq - 1}, sent[seq - 1])
            raw.send_multipart(message.pack())
        answers = []
        while not answers or answers[-1].kind != "failed":
            assert raw.poll(5000)
            answers.append(parse(raw.recv_multipart(), 0))
        assert "one was lost" in answers[-1].fields["reason"]
        assert len(answers) == len(seqs) and len(weights.held) <= 1
        raw.close()
    context.term()


def test_bad_arguments_are_named():
    with pytest.raises(TransportError, match="^fan="):
        RelayTransport([], fan="ring")
    with pytest.raises(TransportError, match="^window="):
        RelayTransport([], window=0)
    with pytest.raises(TransportError, match="^index=2"):
        RelayNode(2, ["tcp://127.0.0.1:1"], Intake(Recorder()))
    with RelayTransport(["tcp://127.0.0.1:1"]) as source, pytest.raises(TransportError, match="^receivers="):
        source.broadcast(A, [], receivers=[])
    port = free_ports(1)[0]
    context = zmq.Context()
    taken = context.socket(zmq.ROUTER)
    taken.bind(f"tcp://{HOST}:{port}")
    with pytest.raises(TransportError, match="Address already in use"):
        RelayNode(0, [f"tcp://{HOST}:{port}"], Intake(Recorder()))
    context.destroy(linger=0)


# -- real weights, real processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_resident_weights_become_the_new_ones(memory, mode):
    w = world(1)
    stores = [ResidentStore.create(memory / str(i), w.old, fs=Unsynced()) for i in range(3)]
    with tree(*stores) as held, transport(held) as source:
        assert source.broadcast(A, payloads(w, A), mode=mode) == {i: fingerprint(w.new) for i in range(3)}
        source.commit(A)
    assert [(s.status().version, s.fingerprint()) for s in stores] == [(1, fingerprint(w.new))] * 3
    for store in stores:
        store.close()
    assert fingerprint(NEW) != fingerprint(OLD)


def test_the_command_serves_a_store_until_it_is_told_to_end(memory):
    w, ports = world(2), free_ports(2)
    addresses = [f"tcp://{HOST}:{port}" for port in ports]
    for index in range(2):
        ResidentStore.create(memory / str(index), w.old, fs=Unsynced()).close()
    served = [
        subprocess.Popen(
            [sys.executable, "-m", "reprise.cli", "refit", "serve-relay", str(index), *addresses]
            + ["--store", str(memory / str(index))],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        for index, each in enumerate(served):
            assert each.stdout.readline() == f"receiver {index} of 2 at {addresses[index]}: version 0\n"
        with RelayTransport(addresses, timeout=10) as source:
            assert set(source.broadcast(A, payloads(w, A)).values()) == {fingerprint(w.new)}
            source.commit(A)
        for each in served:
            each.terminate()
            assert each.wait(10) == 0
    finally:
        for each in served:
            each.kill()
            each.wait(10)
            each.stdout.close()
    with ResidentStore(memory / "1") as store:
        assert (store.status().version, store.fingerprint()) == (1, fingerprint(w.new))


def test_the_command_refuses_in_one_sentence(memory):
    result = CliRunner().invoke(cli, ["serve-relay", "0", "tcp://127.0.0.1:1", "--store", str(memory / "none")])
    assert result.exit_code == 1 and isinstance(result.exception, RepriseError) and "none" in str(result.exception)
    ResidentStore.create(memory / "s", OLD, fs=Unsynced()).close()
    result = CliRunner().invoke(cli, ["serve-relay", "3", "tcp://127.0.0.1:1", "--store", str(memory / "s")])
    assert str(result.exception) == "index=3: expected 0 <= index < 1"


def test_killed_receivers_restarted_roots_and_stalled_links_fail_the_attempt_and_the_retry_is_exact():
    named = {"leaf killed": 2, "root restarted": 0, "link stalled": 0}
    for row in interrupted(0, named):
        assert row["failed"] and row["receiver"] == named[row["fault"]], row
        assert row["mixed"] >= 1 and row["exact"], row
