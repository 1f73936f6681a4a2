"""The changes of a partitioned tensor in bits: per class which elements changed, and by how much.

A step is the word that "add" stores, less one, so 0 and 1 are an ulp down and up. Its `low` lowest bits, the direction
among them, are sent as they are. What is above is spelled in unary, layer by layer over all steps of the class: which
quotients exceed 0, which of those exceed 1, and so on. Flags cost what they are worth (`flag_runs`), so that a class
whose steps are nearly all one ulp spends little more than the direction on each.

    counts    of each class that OLD has: its changes; if there are any, `low` and the set flags of each layer
    fields    remainders of all runs, then class after class the low bits and the quotients that pass all layers
    unary     of all runs
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from reprise.refit.errors import PayloadError
from reprise.refit.exponents.bit_streams import read_fields, read_unary, write_fields, write_unary
from reprise.refit.exponents.exponent_classes import CLASSES, Changes
from reprise.refit.exponents.flag_runs import Run, gaps_of, places_of, widths_of

LAYERS = 8  # quotients from here on are rare, and sent as they are
QUOTIENT = 16  # bits of such a one
WORD = 1 << 16
_NONE = np.empty((2, 0), np.int64)


class ClassCode(NamedTuple):
    """What the counts say of one class.

    Args:
        population: its elements, which the receiver knows.
        changed: how many of them changed.
        low: bits of a step sent as they are, 1 to 15.
        layers: set flags of each layer; ends with a 0 or after LAYERS of them.
    """

    population: int
    changed: int
    low: int
    layers: tuple[int, ...]

    @property
    def runs(self) -> list[Run]:
        counts = (self.changed, *self.layers)
        return [Run(*sizes) for sizes in zip((self.population, *counts[:-1]), counts, strict=True)]

    @property
    def widths(self) -> list[tuple[int, int]]:
        """(bits, how many) of the fields of the class beside the remainders."""
        return [(self.low, self.changed), (QUOTIENT, self.layers[-1])]


def pack(changes: Changes) -> tuple[bytes, bytes]:
    """(counts, streams) of `changes`."""
    codes, places, values, begin = [], [], [], 0
    for held, changed in zip(changes.population.tolist(), changes.changed.tolist(), strict=True):
        if held:
            own = slice(begin, begin + changed)
            steps = changes.words[own].astype(np.int64) - 1
            low = _low_bits(steps)
            layers, quotients = _layers(steps >> low)
            codes.append(ClassCode(held, changed, low, tuple(flags.size for flags in layers)))
            places += [changes.places[own], *layers]
            values += [steps & (1 << low) - 1, quotients]
            begin += changed
    runs = [run for code in codes for run in code.runs]
    gaps, remainders = gaps_of(runs, places), widths_of(runs)
    fields = write_fields(np.concatenate([gaps, *values]), _field_widths(codes, remainders))
    return b"".join(map(_pack_code, codes)), fields.tobytes() + write_unary(gaps >> remainders).tobytes()


def unpack(counts: bytes, streams: np.ndarray, population: np.ndarray, changed: int) -> Changes:
    """Inverse of `pack`.

    Args:
        counts, streams: what `pack` made; uint8 the latter.
        population: [CLASSES] int64 elements of each class.
        changed: how many elements changed in all.

    Raises:
        PayloadError: parts that contradict each other.
    """
    codes = list(_read_codes(counts, population))
    by_class = np.zeros(CLASSES, np.int64)
    by_class[population > 0] = [code.changed for code in codes]
    if by_class.sum() != changed:
        raise PayloadError(f"counts: {by_class.sum()} changes, the prefix declares {changed}")
    runs = [run for code in codes for run in code.runs]
    unary_at = _fields_bytes(codes, runs, streams.size)
    remainders = widths_of(runs)
    values = read_fields(streams[:unary_at], _field_widths(codes, remainders))
    quotients = read_unary(streams[unary_at:], remainders.size)
    places = iter(places_of(runs, quotients, values[: remainders.size]))
    found = [(next(places), _steps(code, places, own)) for code, own in _shares(codes, values[remainders.size :])]
    at, steps = (np.concatenate(parts) for parts in zip(_NONE, *found, strict=True))
    if steps.size and int(steps.max()) >= WORD - 1:
        raise PayloadError(f"step: {int(steps.max())}, expected less than {WORD - 1}")
    return Changes(population, by_class, at, (steps + 1).astype(np.uint16))


def _low_bits(steps: np.ndarray) -> int:
    """The fewest bits, but at least the direction, that leave half of the quotients below 2."""
    low = 1
    while 2 * np.count_nonzero(steps >> low < 2) < steps.size:
        low += 1
    return low


def _layers(quotients: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """(places of the set flags of each layer, what is left of the quotients that pass all of them)."""
    layers = []
    while not layers or (layers[-1].size and len(layers) < LAYERS):
        layers.append(np.flatnonzero(quotients))
        quotients = quotients[layers[-1]] - 1
    return layers, quotients


def _steps(code: ClassCode, places: Iterator[np.ndarray], fields: np.ndarray) -> np.ndarray:
    """int64 steps of a class from the places of its layers, next in `places`, and its fields."""
    quotients, passing = np.zeros(code.changed, np.int64), np.arange(code.changed)
    for _ in code.layers:
        passing = passing[next(places)]
        quotients[passing] += 1
    quotients[passing] += fields[code.changed :]
    return quotients << code.low | fields[: code.changed]


def _shares(codes: list[ClassCode], values: np.ndarray) -> Iterator[tuple[ClassCode, np.ndarray]]:
    begin = 0
    for code in codes:
        size = sum(count for _, count in code.widths)
        yield code, values[begin : begin + size]
        begin += size


def _field_widths(codes: list[ClassCode], remainders: np.ndarray) -> np.ndarray:
    sizes = np.array([pair for code in codes for pair in code.widths], np.int64).reshape(-1, 2)
    return np.concatenate([remainders, np.repeat(*sizes.T)])


def _fields_bytes(codes: list[ClassCode], runs: list[Run], available: int) -> int:
    """Bytes of the fields; PayloadError, before anything of that size is made, where streams hold too little."""
    bits = sum(run.places * run.width for run in runs)
    bits += sum(width * count for code in codes for width, count in code.widths)
    unary = sum(run.places for run in runs)
    if -(-bits // 8) + -(-unary // 8) > available:
        raise PayloadError(f"streams: {available} bytes for {bits} bits of fields and at least {unary} of unary")
    return -(-bits // 8)


def _pack_code(code: ClassCode) -> bytes:
    numbers = (code.changed, code.low, *code.layers) if code.changed else (0,)
    return b"".join(map(_varint, numbers))


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit tells that another byte follows."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def _read_codes(data: bytes, population: np.ndarray) -> Iterator[ClassCode]:
    at = 0

    def number(least: int, most: int, what: str) -> int:
        nonlocal at
        value = 0
        for shift in range(0, 63, 7):
            if at >= len(data):
                raise PayloadError("counts: end inside a number")
            value |= (data[at] & 127) << shift
            at += 1
            if data[at - 1] < 128:
                break
        if not least <= value <= most:
            raise PayloadError(f"counts: {value} {what}, expected {least} to {most}")
        return value

    for held in population[population > 0].tolist():
        changed = number(0, held, "changes in a class")
        low, layers = 1, [0]
        if changed:
            low, layers = number(1, 15, "low bits"), [number(0, changed, "flags in a layer")]
            while layers[-1] and len(layers) < LAYERS:
                layers.append(number(0, layers[-1], "flags in a layer"))
        yield ClassCode(held, changed, low, tuple(layers))
    if at != len(data):
        raise PayloadError(f"counts: {len(data) - at} bytes are left over")
