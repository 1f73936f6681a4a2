"""Every format reads the same run: who spoke in which order, and each record is a turn or is listed with a reason."""

import json
from pathlib import Path

import pytest

from reprise.labs import audit_examples as examples
from reprise.traces import FORMATS, TraceError, read_log, read_logs
from reprise.traces.files import document, json_values

EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "audit"
REPORT = "Bergen had 238929 inhabitants and Trondheim 205163."
# file -> (format, runs, speakers in order, turn of the decisive error)
EXPECTED = {
    "aftraj.parquet": ("aftraj", 2, "user Manager search_agent environment search_agent Manager", 4),
    "autogen.json": ("autogen", 1, "user Manager Manager Searcher Searcher Searcher Manager Manager", 5),
    "inspect.eval": ("inspect_log", 1, "user manager searcher searcher searcher manager", 4),
    "langgraph.jsonl": ("langgraph", 1, "manager manager agent tools agent calculator manager", 4),
    "openai_messages.json": ("openai_messages", 1, "user Manager Searcher tool Searcher Manager tool Manager", 4),
    "otel_attributes.json": ("otel", 1, "user Manager Searcher Searcher Searcher Manager", 4),
    "otel_events.jsonl": ("otel", 1, "user Manager Searcher tool Searcher Manager", 4),
    "smolagents.json": ("smolagents", 1, "user manager manager search_agent search_agent manager manager", 4),
    "who_and_when.json": (
        "who_and_when",
        1,
        "human Orchestrator Orchestrator WebSurfer Orchestrator Assistant Orchestrator",
        3,
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_reads_as_its_format(name):
    format, runs, speakers, error = EXPECTED[name]
    logs = read_logs(EXAMPLES / name)
    assert len(logs) == runs
    assert {log.format for log in logs} == {format}
    assert [turn.role for turn in logs[0].turns] == speakers.split()
    assert REPORT in logs[0].turns[error].content
    assert all(REPORT not in turn.content for turn in logs[0].turns[:error])
    assert all(turn.raw is not None for turn in logs[0].turns)


def test_every_format_has_an_example():
    # an MCP session holds tool calls only, no conversation: its example is in data/examples/evidence
    assert {format for format, *_ in EXPECTED.values()} == set(FORMATS) - {"mcp"}


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("who")])
def test_the_search_and_its_result_are_kept_as_such(name):
    turns = read_logs(EXAMPLES / name)[0].turns
    call = next(call for turn in turns for call in turn.calls if call.name == "search")
    assert call.arguments == {"query": "population 2020 Bergen Trondheim"}
    result = next(result for turn in turns for result in turn.results if result.name == "search")
    assert result.content.startswith("Bergen 283929") and not result.failed
    if call.id and name != "aftraj.parquet":
        assert result.id == call.id


def records(name):
    """How many records of the file could be turns."""
    value = document(EXAMPLES / name)
    count = {
        "aftraj.parquet": lambda: len(value[0]["turns"]),
        "autogen.json": lambda: len(value["messages"]),
        "inspect.eval": lambda: len(value["samples"][0]["events"]),
        "openai_messages.json": lambda: len(value),
        "smolagents.json": lambda: sum(map(len, value.values())),
        "who_and_when.json": lambda: len(value["history"]),
        # messages of the nodes, the update and the null update, and the state beside messages
        "langgraph.jsonl": lambda: 2 + 1 + 1 + 1 + 4 + 1 + 1 + 1 + 1,
        # spans, and the task, which stands in no span of its own
        "otel_attributes.json": lambda: len(value["resourceSpans"][0]["scopeSpans"][0]["spans"]) + 1,
        # four spans, the task, and the result of a tool that has no span
        "otel_events.jsonl": lambda: 4 + 1 + 1,
    }
    return count[name]()


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_is_lost(name):
    log = read_logs(EXAMPLES / name)[0]
    assert len(log.turns) + len(log.dropped) == records(name)
    assert all(each.reason and each.place for each in log.dropped)


def test_the_examples_are_what_their_module_writes():
    for name, data in examples.files().items():
        if name.endswith((".json", ".jsonl")):
            assert (EXAMPLES / name).read_bytes() == data
        else:  # compressors and Parquet writers differ between versions, what is inside does not
            (whole,) = [value for value in [document(EXAMPLES / name)]]
            assert whole == (examples.aftraj() if name.endswith("parquet") else examples.inspect_log())


@pytest.mark.parametrize("name", EXPECTED)
def test_no_other_format_reads_it(name, tmp_path):
    format = EXPECTED[name][0]
    for other in set(FORMATS) - {format}:
        with pytest.raises(TraceError, match=f"{name}: format={other}: "):
            read_logs(EXAMPLES / name, other)


def test_json_lines_and_a_list_are_one(tmp_path):
    lines = EXAMPLES / "langgraph.jsonl"
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps(json_values(lines.read_bytes())))
    assert read_log(listed).turns == read_log(lines).turns


def test_one_run_of_several_is_named():
    with pytest.raises(TraceError, match="2 runs: expected run to be one of 'bergen_unsafe', 'bergen_safe'"):
        read_log(EXAMPLES / "aftraj.parquet")
    assert read_log(EXAMPLES / "aftraj.parquet", run="bergen_safe").meta["mistake_step"] == -1
    with pytest.raises(TraceError, match="run='x': 0 such runs"):
        read_log(EXAMPLES / "aftraj.parquet", run="x")
