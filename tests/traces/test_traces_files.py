"""Files: what is refused, with the line or member named, and what is never unpacked."""

import io
import json
import zipfile

import pytest

from reprise.labs.audit_examples import inspect_log
from reprise.traces import TraceError, files, read_log, read_logs


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "data, error",
    [
        ('{"a": ', "x.json: not read as JSON"),
        ('{"role": "user", "content": ""}\n{"role"', "x.json: line 2: not read as JSON"),
        (b"\xff\xfe", "x.json: byte 0: expected UTF-8"),
        ("", "x.json: not read as JSON"),
        ("[" * 100_000, "x.json: nested too deeply"),
        ("PAR1 not really", "x.json: not read as Parquet"),
        (b"PK\x03\x04 not really", "x.json: not read as a zip"),
        ("{}", "x.json: format: keys : expected a log of"),
    ],
)
def test_refused_with_its_name(tmp_path, data, error):
    with pytest.raises(TraceError, match=error):
        read_logs(write(tmp_path / "x.json", data))


def test_no_file_and_no_format(tmp_path):
    with pytest.raises(TraceError, match="nowhere.json: No such file"):
        read_log(tmp_path / "nowhere.json")
    with pytest.raises(TraceError, match="format='csv': expected auto, who_and_when"):
        read_log(tmp_path / "x.json", "csv")


def test_lines_end_at_line_feeds_only(tmp_path):
    said = {"role": "user", "content": "a\u2028b"}
    path = write(tmp_path / "x.jsonl", "\n".join(json.dumps(said, ensure_ascii=False) for _ in range(2)))
    assert [turn.content for turn in read_log(path).turns] == ["a\u2028b"] * 2


def test_a_file_is_refused_by_its_size_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    with pytest.raises(TraceError, match="31 bytes: expected at most 10"):
        read_log(write(tmp_path / "x.json", '{"role": "user", "content": ""}'))


def zipped(members, method=zipfile.ZIP_DEFLATED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text, method)
    return data.getvalue()


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    bomb = zipped({"header.json": "{}", "samples/1.json": b" " * (1 << 24)})
    with pytest.raises(TraceError, match="samples/1.json: more than 1048576 bytes unpacked"):
        read_log(write(tmp_path / "x.eval", bomb))


def test_a_zstandard_bomb_neither(tmp_path, monkeypatch):
    zstandard = pytest.importorskip("zstandard")
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    # stored and then declared to be Zstandard, which zipfile does not write on this Python
    packed = zstandard.compress(b" " * (1 << 24))
    info = zipfile.ZipInfo("samples/1.json")
    info.compress_type, info.header_offset, info.compress_size, info.CRC = files.ZSTANDARD, 0, len(packed), 0
    head = b"PK\x03\x04" + bytes(22) + b"\0\0\0\0"
    with pytest.raises(TraceError, match="more than 1048576 bytes unpacked"):
        files.member(head + packed, info, 1 << 20)


@pytest.mark.parametrize(
    "members, error",
    [
        ({"other.json": "{}"}, "no header.json: expected inspect's .eval layout"),
        ({"header.json": "[]"}, "header.json: expected an object"),
        ({"header.json": "{"}, "header.json: not read as JSON"),
        ({"header.json": "{}", "samples/a.json": "{"}, "samples/a.json: not read as JSON"),
    ],
)
def test_a_broken_eval_file_names_the_member(tmp_path, members, error):
    with pytest.raises(TraceError, match=error):
        read_log(write(tmp_path / "x.eval", zipped(members)))


def test_a_flipped_bit_is_noticed(tmp_path):
    data = bytearray(zipped({"header.json": json.dumps({"eval": {}})}, zipfile.ZIP_STORED))
    data[data.index(b"eval")] ^= 1
    with pytest.raises(TraceError, match="header.json: damaged: its checksum differs"):
        read_log(write(tmp_path / "x.eval", bytes(data)))


def test_an_interrupted_eval_is_read_from_its_start(tmp_path):
    log = inspect_log()
    members = {"_journal/start.json": json.dumps({"eval": log["eval"]})}
    members["samples/bergen_epoch_1.json"] = json.dumps(log["samples"][0])
    assert len(read_log(write(tmp_path / "x.eval", zipped(members)))) == 6


def test_a_parquet_dictionary_bomb_is_not_unpacked(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr(files, "MOST_BYTES", 1 << 22)
    table = pa.table({"conv_id": ["x" * 100_000] * 2000, "turns": [[]] * 2000})
    parquet.write_table(table, tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    with pytest.raises(TraceError, match="rows of more than 4194304 bytes"):
        read_logs(tmp_path / "x.parquet")


@pytest.mark.slow
def test_inspects_own_reader_gives_the_same_events(tmp_path):
    """A log that inspect wrote: Zstandard members, attachments, events in its current layout."""
    inspect = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.solver import generate

    outputs = [ModelOutput.from_content("mockllm", "answer " * 50)]
    task = inspect.Task(dataset=[Sample(input="What is asked? " * 20, target="x")], solver=generate())
    model = get_model("mockllm/model", custom_outputs=outputs)
    (written,) = inspect.eval(task, model=model, log_dir=str(tmp_path), display="none")
    whole = read_eval_log(written.location, resolve_attachments=True)
    log = read_log(written.location)
    assert log.meta["task"] == whole.eval.task
    events = [event for event in whole.samples[0].events if event.event in ("sample_init", "model", "error")]
    assert len(log) == len(events) and len(log.dropped) == len(whole.samples[0].events) - len(events)
    assert log.turns[0].content == events[0].sample.input
    outputs = [event.output.completion for event in events if event.event == "model" and event.output.choices]
    assert all(text in turn.content for text, turn in zip(outputs, log.turns[1:], strict=False))
