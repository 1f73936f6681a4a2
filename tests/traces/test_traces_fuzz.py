"""Damaged logs: whatever stands in them, the readers give turns or raise TraceError."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprise.traces import TraceError, read_log
from reprise.traces.detect import READERS, candidates
from reprise.traces.files import document, eval_log, json_values, parquet_rows

EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "audit"
NAMES = sorted(path.name for path in EXAMPLES.iterdir())
WHOLE = {name: document(EXAMPLES / name) for name in NAMES}
FORMAT = {name: candidates(value)[0] for name, value in WHOLE.items()}

scalars = st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


def places(value, path=()):
    """Every place inside a value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value, path, new):
    """The value with what stands at the path replaced, or taken out where `new` is the module itself."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is REMOVED and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


REMOVED = object()
PLACES = {name: list(places(value))[1:] for name, value in WHOLE.items()}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_place_changed(name, data):
    path = data.draw(st.sampled_from(PLACES[name]))
    changed = put(WHOLE[name], path, data.draw(st.just(REMOVED) | values))
    assert isinstance(candidates(changed), list)
    if READERS[FORMAT[name]].looks_like(changed):
        try:
            logs = READERS[FORMAT[name]].read(changed)
        except TraceError:
            return
        assert all(len(log) for log in logs)
        assert all(isinstance(turn.content, str) and isinstance(turn.role, str) for log in logs for turn in log.turns)


@pytest.mark.parametrize("name", NAMES)
def test_every_place_removed_or_replaced_in_turn(name):
    for path in PLACES[name]:
        for new in (REMOVED, None, 3, "text", [], {}, [None], True):
            changed = put(WHOLE[name], path, new)
            if READERS[FORMAT[name]].looks_like(changed):
                try:
                    READERS[FORMAT[name]].read(changed)
                except TraceError as error:
                    assert len(str(error)) < 400


@given(value=values)
@settings(max_examples=80, deadline=None)
def test_any_value_is_detected_or_refused(value):
    for name in candidates(value):
        try:
            READERS[name].read(value)
        except TraceError:
            pass


@pytest.mark.parametrize("read", [json_values, eval_log, parquet_rows])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_bytes(read, data):
    name = {json_values: "openai_messages.json", eval_log: "inspect.eval", parquet_rows: "aftraj.parquet"}[read]
    whole = bytearray((EXAMPLES / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        try:
            read(damaged)
        except TraceError:
            pass


@pytest.mark.parametrize("depth", [70, 300, 5000])
def test_deep_values_are_read_or_refused(tmp_path, depth):
    content = "[" * depth + "]" * depth
    (tmp_path / "deep.json").write_text('[{"role": "user", "content": ' + content + "}]")
    try:
        assert read_log(tmp_path / "deep.json").turns[0].content.startswith("[")
    except TraceError as error:
        assert depth > 70 and "nested too deeply" in str(error)


def test_deep_attribute_values_are_refused():
    value = {"stringValue": "x"}
    for _ in range(100):
        value = {"arrayValue": {"values": [value]}}
    span = {"attributes": [{"key": "a", "value": value}], "startTimeUnixNano": "0", "endTimeUnixNano": "0"}
    with pytest.raises(TraceError, match="nested deeper than 64"):
        READERS["otel"].read({"resourceSpans": [{"scopeSpans": [{"spans": [span | {"spanId": "s"}]}]}]})
