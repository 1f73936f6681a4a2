"""The latency model: the fit to the reported figures, known constants recovered, least loss against a search."""

import csv
from math import inf, isnan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.errors import RepriseError
from reprise.refit.latency import (
    LatencyModel,
    Observation,
    build_rate_profile,
    fit,
    leave_one_out,
    log_loss,
    payload_share,
)

REPORTED = Path(__file__).parents[2] / "data/reported/refit"
TRUE = LatencyModel({"relay": 3.0, "store": 3.0}, {"relay": 0.4, "store": 0.25})
SIZES = (60.0, 250.0, 2000.0)


def reported():
    """The eight figures in the order of the file, as observations."""
    sizes = {row["model"]: float(row["size_gb"]) for row in read("checkpoints")}
    return [
        Observation(
            row["transport"],
            size := sizes[row["model"]],
            size * payload_share(float(row["changed"])),
            float(row["seconds"]),
        )
        for row in read("latency")
    ]


def read(table):
    with open(REPORTED / f"{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


def timed(model, sizes=SIZES, changes=(0.03, 0.05)):
    """What `model` predicts, as observations over both of its transports."""
    return [
        Observation(name, size, size * payload_share(p), float(model.predict(name, size, size * payload_share(p))))
        for name in model.bandwidth
        for size in sizes
        for p in changes
    ]


# -- the reported figures ----------------------------------------------------------------------------------------------


def test_the_fit_to_the_reported_figures():
    model, figures = fit(reported()), reported()
    assert model.start_s["relay"] == model.start_s["store"] == pytest.approx(4.92, abs=0.005)
    assert model.bandwidth == pytest.approx({"relay": 0.345, "store": 0.239}, abs=5e-4)
    errors = np.abs(model.errors(figures))
    assert (100 * errors.max(), 100 * errors.mean()) == pytest.approx((11.0, 6.3), abs=0.05)
    outside = 100 * np.abs(leave_one_out(figures))
    assert outside[0] == outside.max() == pytest.approx(22.1, abs=0.05)  # 30B over the relay, 3 % changed
    assert outside[6] == pytest.approx(20.7, abs=0.05)  # 1T through the store


def test_the_construction_rate_of_the_reported_figures_is_not_identified():
    free = log_loss(fit(reported()), reported())
    assert build_rate_profile(reported(), [14.5, 40, 190]) == pytest.approx([free] * 3, rel=1e-9)
    assert (np.diff(build_rate_profile(reported(), [6, 8, 10, 12, 14])) < 0).all()
    meeting = fit(reported(), build_rate=14.3)  # just below, both bounds of the relay meet at 3 % changed
    assert meeting.bandwidth["relay"] == pytest.approx(14.3 * 0.024)
    assert log_loss(meeting, reported()) > free


def test_every_reported_row_says_where_it_stands_and_how_it_was_read():
    for table in ("checkpoints", "latency", "ranges", "requirements", "calculator"):
        rows = read(table)
        assert rows and all(row["source"] for row in rows)
        assert all(text for row in rows for name, text in row.items() if name.endswith("reading"))


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transport, size, payload, build_rate, seconds, share",
    [
        ("relay", 100, 2, inf, 8, 0.625),  # 3 + 2 / .4
        ("store", 100, 2, inf, 11, 8 / 11),  # 3 + 2 / .25
        ("relay", 100, 2, 10, 13, 5 / 13),  # 3 + 100 / 10
        ("relay", 100, 2, 20, 8, 0.625),  # both bounds take 5
    ],
)
def test_predictions_by_hand(transport, size, payload, build_rate, seconds, share):
    model = LatencyModel(TRUE.start_s, TRUE.bandwidth, build_rate)
    assert model.predict(transport, size, payload) == pytest.approx(seconds)
    assert model.transport_share(transport, size, payload) == pytest.approx(share)


def test_predictions_of_arrays():
    assert TRUE.predict("relay", np.array([1.0, 1.0]), np.array([0.4, 4.0])).tolist() == [4.0, 13.0]


@pytest.mark.parametrize("changed, share", [(0, 0), (0.03, 0.024), (0.05, 0.038)])
def test_payload_share_at_the_printed_points(changed, share):
    assert payload_share(changed) == pytest.approx(share, rel=1e-12)


def test_payload_share_grows_with_the_change_fraction():
    shares = [payload_share(x) for x in np.linspace(0, 1, 201)]
    assert (np.diff(shares) > 0).all() and shares[-1] < 1


def test_crossover_and_break_even_by_hand():
    model = LatencyModel({"relay": 2.0, "store": 4.0}, {"relay": 0.25, "store": 0.5})
    assert model.crossover_payload("relay", "store") == pytest.approx(1.0)  # 2 + 4 V = 4 + 2 V
    assert model.crossover_payload("store", "relay") == pytest.approx(1.0)
    assert model.break_even_bandwidth("store", "relay", 50, 2.0) == pytest.approx(1 / 3)  # 4 + 2 / B = 10
    assert model.break_even_bandwidth("store", "relay", 50, 0.5) == inf  # the relay is done in 4 s
    assert isnan(TRUE.crossover_payload("relay", "store"))  # equal starts: the faster link always wins
    assert isnan(TRUE.crossover_payload("relay", "relay"))
    bound = LatencyModel({"relay": 2.0, "store": 3.0}, model.bandwidth, build_rate=10)
    assert bound.break_even_bandwidth("store", "relay", 50, 1.0) == inf  # 3 + 50 / 10 > 2 + 50 / 10
    bound = LatencyModel(dict.fromkeys(model.bandwidth, 4.9), model.bandwidth, build_rate=3)
    assert bound.break_even_bandwidth("store", "relay", 7, 0.5) == pytest.approx(0.5 / (7 / 3))
    bound = LatencyModel({"relay": 3.0, "store": 2.0}, model.bandwidth, build_rate=10)
    assert bound.break_even_bandwidth("store", "relay", 50, 1.0) == pytest.approx(1 / 6)


@given(
    start=st.tuples(st.floats(0.1, 20), st.floats(0.1, 20)),
    bandwidth=st.tuples(st.floats(0.05, 5), st.floats(0.05, 5)),
    payload=st.floats(0.1, 50),
)
def test_at_the_break_even_bandwidth_both_take_the_same_time(start, bandwidth, payload):
    names = ("relay", "store")
    model = LatencyModel(dict(zip(names, start, strict=True)), dict(zip(names, bandwidth, strict=True)))
    needed = model.break_even_bandwidth("store", "relay", 1.0, payload)
    at_even = LatencyModel(model.start_s, model.bandwidth | {"store": needed})
    if needed == inf:
        assert at_even.predict("store", 1.0, payload) >= model.predict("relay", 1.0, payload)
    else:
        assert at_even.predict("store", 1.0, payload) == pytest.approx(model.predict("relay", 1.0, payload))


# -- the fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start, other_start, relay, store, build_rate",
    [
        (3, 3, 0.4, 0.25, inf),
        (3, 3, 0.4, 0.25, 12),  # construction binds the relay at 3 % and at 5 %
        (3, 3, 0.4, 0.25, 9),  # and the store at 3 %
        (0, 0, 0.4, 0.25, inf),
        (5, 3, 0.4, 0.8, inf),
    ],
)
def test_known_constants_are_recovered(start, other_start, relay, store, build_rate):
    true = LatencyModel({"relay": start, "store": other_start}, {"relay": relay, "store": store}, build_rate)
    found = fit(timed(true), build_rate=build_rate, shared_start=start == other_start)
    assert log_loss(found, timed(true)) < 1e-18
    assert found.start_s == pytest.approx(true.start_s, abs=1e-6)
    binds = build_rate < relay / payload_share(0.05) * (1 - 1e-9)  # then any faster relay predicts the same
    assert found.bandwidth["store"] == pytest.approx(store)
    assert found.bandwidth["relay"] == pytest.approx(relay) if not binds else found.bandwidth["relay"] > 0


def test_equal_transports_are_found_equal_and_one_transport_is_enough():
    alone = fit([one for one in timed(TRUE) if one.transport == "store"])
    assert alone.bandwidth == pytest.approx({"store": 0.25})
    assert leave_one_out(timed(TRUE)) == pytest.approx(np.zeros(12), abs=1e-9)


def test_constants_are_never_negative():
    falling = [Observation("relay", 1.0, payload, seconds) for payload, seconds in [(1, 9.0), (2, 8.0), (3, 7.0)]]
    model = fit(falling)
    assert model.bandwidth == {"relay": inf}
    assert model.start_s["relay"] == pytest.approx((9 * 8 * 7) ** (1 / 3))
    steep = [Observation("relay", 1.0, payload, seconds) for payload, seconds in [(1, 1.0), (2, 4.0), (3, 9.0)]]
    assert fit(steep).start_s == {"relay": 0.0}
    assert fit(steep).bandwidth["relay"] == pytest.approx(6 ** (-1 / 3))  # the mean of log(seconds / payload)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), build_rate=st.sampled_from([inf, 20.0, 10.0, 6.0]))
def test_no_other_constants_fit_better(seed, build_rate):
    rng = np.random.default_rng(seed)
    noisy = [
        Observation(one.transport, one.size_gb, one.payload_gb, one.seconds * rng.lognormal(0, 0.3))
        for one in timed(LatencyModel(TRUE.start_s, TRUE.bandwidth, 12.0))
    ]
    found = fit(noisy, build_rate=build_rate)
    least, own_start = log_loss(found, noisy), found.start_s["relay"]
    for spread in (1.0, 0.1, 0.01):
        for start, relay, store in rng.lognormal(0, spread, (100, 3)):
            tried = {"relay": min(found.bandwidth["relay"], 9) * relay, "store": found.bandwidth["store"] * store}
            starts = dict.fromkeys(tried, max(own_start, 0.01) * start)
            assert log_loss(LatencyModel(starts, tried, build_rate), noisy) >= least - 1e-12


def test_the_order_of_observations_and_the_unit_of_time_do_not_matter():
    figures = reported()
    model, mirrored = fit(figures), fit(figures[::-1])
    assert mirrored.bandwidth == pytest.approx(model.bandwidth, rel=1e-9)
    minutes = fit([Observation(one.transport, one.size_gb, one.payload_gb, one.seconds / 60) for one in figures])
    assert minutes.start_s["relay"] == pytest.approx(model.start_s["relay"] / 60, rel=1e-9)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, bad", [("size_gb", 0), ("payload_gb", -1), ("seconds", inf), ("seconds", float("nan"))])
def test_an_observation_names_what_is_wrong(name, bad):
    values = {"transport": "relay", "size_gb": 1.0, "payload_gb": 1.0, "seconds": 1.0}
    with pytest.raises(RepriseError, match=f"^{name}={bad}: expected a positive number"):
        Observation(**values | {name: bad})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: payload_share(1.2), r"^changed=1.2: expected a share in \[0, 1\]"),
        (lambda: fit(timed(TRUE), build_rate=0), "^build_rate=0: expected a positive number"),
        (lambda: fit([]), "^observations: none: expected timed refits"),
        (lambda: fit(timed(TRUE, sizes=[60.0], changes=[0.03])), "^observations: 2, .* expected more payload sizes"),
        (lambda: fit(timed(TRUE)[:7], shared_start=False), "^observations: 7, .*2 starts and 2 bandwidths"),
        (lambda: TRUE.predict("pigeon", 1, 1), "^transport='pigeon': expected one of relay, store"),
    ],
)
def test_what_cannot_be_answered_is_refused(call, message):
    with pytest.raises(RepriseError, match=message):
        call()
