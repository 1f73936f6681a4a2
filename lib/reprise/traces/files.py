"""A log file as one value of lists and objects: JSON, JSON Lines, Parquet, or inspect's zip; sizes are bounded."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from reprise.traces.errors import TraceError

MOST_BYTES = 1 << 29  # of a file, and of what it holds once decompressed
ROWS = 64  # of a Parquet file that are unpacked at a time
ZSTANDARD = 93  # method number in a zip


def document(path: str | Path) -> Any:
    """What a file holds: JSON as it is, JSON Lines and Parquet rows as a list, an .eval file as inspect's JSON log.

    Raises:
        TraceError: the file cannot be read as any of these, or is larger than MOST_BYTES, as it is or unpacked.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise TraceError(f"{path}: {size} bytes: expected at most {MOST_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    try:
        if data.startswith(b"PAR1"):
            return parquet_rows(data)
        if data.startswith(b"PK\x03\x04"):
            return eval_log(data)
        return json_values(data)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def json_values(data: bytes) -> Any:
    """A JSON value, or the list of a file's lines where each is one.

    Raises:
        TraceError: neither; the message names the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"byte {error.start}: expected UTF-8") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise TraceError("nested too deeply") from None
    except ValueError as error:
        first, _, rest = text.lstrip().partition("\n")
        if not rest.strip() or not _is_json(first):
            raise TraceError(f"not read as JSON: {error}") from None
    values = []
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would also split at U+2028 inside a string
        if line.strip():
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise TraceError(f"line {number}: not read as JSON: {error}") from None
    return values


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def parquet_rows(data: bytes) -> list[dict]:
    """The rows of a Parquet file.

    Raises:
        TraceError: pyarrow is not installed, the file is no Parquet, or its rows are larger than MOST_BYTES.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise TraceError("Parquet: expected pyarrow to be installed") from None
    rows, unpacked = [], 0
    try:
        # a few rows at a time: a dictionary page turns bytes of a file into any amount of text
        for batch in parquet.ParquetFile(io.BytesIO(data)).iter_batches(ROWS, use_threads=False):
            unpacked += batch.nbytes
            if unpacked > MOST_BYTES:
                raise TraceError(f"rows of more than {MOST_BYTES} bytes")
            rows += batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"not read as Parquet: {error}") from None
    return rows


def eval_log(data: bytes) -> dict:
    """inspect's .eval file as the JSON log it stands for: header.json with the samples of samples/*.json.

    Raises:
        TraceError: not a zip, a member is damaged, compressed in an unknown way or missing, or all of them together
            are larger than MOST_BYTES.
    """
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {each.filename: each for each in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, UnicodeDecodeError) as error:
        raise TraceError(f"not read as a zip: {error}") from None
    # a run that was cut short has its start and its samples and no header
    header = next((name for name in ("header.json", "_journal/start.json") if name in members), None)
    if header is None:
        raise TraceError("no header.json: expected inspect's .eval layout")
    names = sorted(name for name in members if name.startswith("samples/") and name.endswith(".json"))
    found = {}
    for name in (header, *names):
        text = member(data, members[name], left)
        left -= len(text)
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{name}: not read as JSON: {error}") from None
    if not isinstance(found[header], dict):
        raise TraceError(f"{header}: expected an object")
    return {**found[header], "samples": [found[name] for name in names]}


def member(data: bytes, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Contents of one member, stored, deflated or in Zstandard frames; never more than `limit` bytes are unpacked.

    Raises:
        TraceError: damaged, an unknown method, or larger.
    """
    start = info.header_offset
    head = data[start : start + 30]
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise TraceError(f"{info.filename}: damaged")
    start += 30 + sum(struct.unpack("<HH", head[26:30]))
    packed = data[start : start + info.compress_size]
    try:
        if info.compress_type == zipfile.ZIP_STORED:
            plain = packed
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            plain = zlib.decompressobj(-15).decompress(packed, limit + 1)
        elif info.compress_type == ZSTANDARD:
            plain = _zstandard(packed, limit + 1, info.filename)
        else:
            raise TraceError(f"{info.filename}: method {info.compress_type}: expected stored, deflate or Zstandard")
    except zlib.error as error:
        raise TraceError(f"{info.filename}: damaged: {error}") from None
    if len(plain) > limit:
        raise TraceError(f"{info.filename}: more than {MOST_BYTES} bytes unpacked")
    if zlib.crc32(plain) != info.CRC:
        raise TraceError(f"{info.filename}: damaged: its checksum differs")
    return plain


def _zstandard(packed: bytes, limit: int, name: str) -> bytes:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise TraceError(f"{name}: expected zstandard to be installed") from None
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            packed, read_across_frames=True
        ) as stream:
            return stream.read(limit)
    except zstandard.ZstdError as error:
        raise TraceError(f"{name}: damaged: {error}") from None
