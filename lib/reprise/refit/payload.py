"""Deltas as payloads and back: which stream holds what of a tensor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import zstandard

from reprise.errors import RepriseError
from reprise.refit import locations, values
from reprise.refit.bits import word_dtype
from reprise.refit.delta import Delta, Pair, TensorDelta, pairs
from reprise.refit.digests import CHUNK, changed_chunks, check_chunk
from reprise.refit.errors import PayloadError, RefitSchemaError
from reprise.refit.frame import DEFAULT_LIMITS, Limits, open_frame, read_streams, write_frame
from reprise.refit.header import STREAMS, Header, Record
from reprise.refit.operations import check_operation
from reprise.refit.scan import Scan, scan_record, scan_words


def encode(delta: Delta, op: str | None = "add", level: int = 1) -> bytes:
    """One payload of all of `delta`.

    Args:
        delta: what `diff_bits` or `decode` returned.
        op: operation to store words by; None keeps that of each record.
        level: zstd level, 1 to 22.

    Raises:
        PayloadError: a record that does not fit its shape, or whose old words the operation takes and the delta lacks.
        RefitSchemaError: a `delta` that is none.
        RepriseError: a level out of range.
    """
    if not isinstance(delta, Delta):
        raise RefitSchemaError(f"delta: {type(delta).__name__}, expected a Delta, as diff_bits returns it")
    delta = delta if op is None else delta.with_op(op)
    for record in delta.tensors:
        record.check()
    return _write(delta, ((record, record.op, record.chunk, scan_record(record)) for record in delta.tensors), level)


def encode_pair(old, new, op: str = "add", level: int = 1, chunk: int = CHUNK, **transfer) -> bytes:
    """The bytes of encode(diff_bits(old, new, chunk, **transfer), op, level), in one pass and without its indices."""
    check_operation(op)
    check_chunk(chunk)
    scans = ((pair, op, chunk, scan_words(pair.old.words, pair.new.words, op, chunk)) for pair in pairs(old, new))
    return _write(Delta((), **transfer), scans, level)


def read_header(data, limits: Limits = DEFAULT_LIMITS) -> Header:
    """Header of a payload whose digest holds; the streams stay compressed.

    Raises:
        PayloadError: as `decode`, as far as prefix, digest and header go.
    """
    return open_frame(data, limits)[0]


def decode(data, limits: Limits = DEFAULT_LIMITS) -> Delta:
    """The delta in a payload.

    Raises:
        PayloadError: not bytes; wrong magic, format or digest; a size above its declaration or above `limits`;
            trailing or missing bytes; counts, indices, names or dtypes that do not fit.
    """
    header, body = open_frame(data, limits)
    streams = _Streams(read_streams(header, body), header.records)
    records = tuple(_read_tensor(record, streams) for record in header.records)
    streams.end()
    return Delta(
        records,
        header.base_version,
        header.target_version,
        header.transfer_id,
        header.attempt,
        header.producer,
        header.payload_id,
    )


def _write(delta: Delta, tensors: Iterable[tuple[TensorDelta | Pair, str, int, Scan]], level: int) -> bytes:
    if not 1 <= level <= zstandard.MAX_COMPRESSION_LEVEL:
        raise RepriseError(f"level={level}: expected 1 to {zstandard.MAX_COMPRESSION_LEVEL}")
    compressor = zstandard.ZstdCompressor(level=level)
    records, shares = [], {name: [] for name in STREAMS}
    for record, parts in (_encode_tensor(*tensor, compressor) for tensor in tensors):
        records.append(record)
        for name in parts:
            shares[name].append(parts[name])
    header = Header(
        delta.transfer_id,
        delta.attempt,
        delta.producer,
        delta.payload_id,
        delta.base_version,
        delta.target_version,
        (),
        tuple(records),
    )
    return write_frame(header, {name: b"".join(shares.pop(name)) for name in STREAMS}, compressor)


def _encode_tensor(tensor: TensorDelta | Pair, op: str, chunk: int, scan: Scan, compressor) -> tuple[Record, dict]:
    """Header record of one tensor and its share, as bytes, of the streams it uses."""
    nibbles, planes = values.split(scan.words)
    location, parameter, parts = _locate(scan, tensor.elements, compressor)
    parts |= {"old digests": scan.old_digests, "new digests": scan.new_digests}
    parts |= {f"plane {k}": plane for k, plane in enumerate(planes)}
    if nibbles is not None:
        parts["nibbles"] = nibbles
    record = Record(
        tensor.name,
        tensor.aliases,
        tensor.dtype,
        tensor.shape,
        op,
        scan.count,
        chunk,
        location,
        parameter,
        nibbles is not None,
    )
    return record, {name: part.tobytes() for name, part in parts.items()}


def _locate(scan: Scan, elements: int, compressor) -> tuple[str, int, dict[str, np.ndarray]]:
    """(code, its parameter, its shares of the streams) of the cheapest location code."""
    if scan.count and scan.last - scan.first + 1 == scan.count:
        return "range", scan.first, {}
    if 0 < scan.count < locations.RICE_BELOW * elements:
        gaps = locations.gaps_from_bytes(scan.gaps)
        k, bits = locations.rice_bits(gaps)
        if bits < 8 * len(compressor.compress(scan.gaps)):
            unary, remainders = locations.rice_encode(gaps, k)
            return "rice", k, {"unary": unary, "remainders": remainders}
    return "gaps", 0, {"gaps": scan.gaps}


def _read_tensor(record: Record, streams: _Streams) -> TensorDelta:
    words = _read_words(record, streams)
    index = _read_index(record, streams)
    old_digests = streams.take("old digests", 8 * record.chunks).view("<u8")
    tensor = TensorDelta(
        record.name,
        record.dtype,
        record.shape,
        index,
        record.op,
        words,
        old_digests,
        old_digests.copy(),
        record.chunk,
        record.aliases,
    )
    tensor.check()
    changed = changed_chunks(index, record.elements, record.chunk)
    tensor.new_digests[changed] = streams.take("new digests", 8 * np.count_nonzero(changed)).view("<u8")
    return tensor


def _read_words(record: Record, streams: _Streams) -> np.ndarray:
    itemsize = word_dtype(record.dtype).itemsize
    if not record.nibbles:
        return values.from_planes([streams.take(f"plane {k}", record.count) for k in range(itemsize)])
    small = values.nibble_values(streams.take("nibbles", (record.count + 1) // 2), record.count)
    large = int(np.count_nonzero(small == values.ESCAPE))
    return values.join(small, values.from_planes([streams.take(f"plane {k}", large) for k in range(itemsize)]))


def _read_index(record: Record, streams: _Streams) -> np.ndarray:
    if record.location == "range":
        return np.arange(record.parameter, record.parameter + record.count, dtype=np.int64)
    if record.location == "gaps":
        return locations.index_from_gaps(locations.gaps_from_bytes(streams.take_gaps(record.count)))
    ones = streams.take_ones(record.count)
    remainders = streams.take("remainders", -(-record.count * record.parameter // 8))
    return locations.index_from_gaps(locations.rice_decode(ones, remainders, record.parameter))


class _Streams:
    """Streams read record after record; PayloadError where one is too short or not used up."""

    def __init__(self, streams: dict[str, np.ndarray], records: tuple[Record, ...]):
        self._streams = streams
        self._at = dict.fromkeys(streams, 0)
        self._gaps_read = self._ones_read = 0
        # counted first: positions take eight bytes each, and only as many as the header declares are allowed for
        gap_end = streams["gaps"] != locations.ESCAPE
        for location, name, held in (
            ("gaps", "gaps", np.count_nonzero(gap_end)),
            ("rice", "unary", np.bitwise_count(streams["unary"]).sum()),
        ):
            declared = sum(record.count for record in records if record.location == location)
            if held != declared:
                raise PayloadError(f"{name}: {held} entries, the header declares {declared}")
        self._gap_ends = np.flatnonzero(gap_end)
        self._ones = locations.one_positions(streams["unary"])

    def take(self, name: str, size: int) -> np.ndarray:
        at = self._at[name]
        if at + size > self._streams[name].size:
            raise PayloadError(f"{name}: {self._streams[name].size} bytes, expected more")
        self._at[name] = at + size
        return self._streams[name][at : at + size]

    def take_gaps(self, count: int) -> np.ndarray:
        """Bytes of the next `count` gaps."""
        if count == 0:
            return self.take("gaps", 0)
        self._gaps_read += count
        return self.take("gaps", int(self._gap_ends[self._gaps_read - 1]) + 1 - self._at["gaps"])

    def take_ones(self, count: int) -> np.ndarray:
        """Positions of the next `count` ones of the unary stream, from the byte after the last record's."""
        ones = self._ones[self._ones_read : self._ones_read + count]
        self._ones_read += count
        begin = self._at["unary"]
        self.take("unary", int(ones[-1]) // 8 + 1 - begin)
        return ones - 8 * begin

    def end(self) -> None:
        for name, data in self._streams.items():
            if self._at[name] != data.size:
                raise PayloadError(f"{name}: {data.size - self._at[name]} bytes are left over")
