"""The forms in which a run's values are stored: strict JSON, CSV text and small PNG files, the same bytes each time."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from reprise.errors import RepriseError
from reprise.nb.predicates import plain

PNG_DPI = 100
PNG_BYTES = 60_000  # a larger picture is stored with a palette, to keep diffs and clones small


def strict_json(value: Any, where: str = "") -> Any:
    """The value as strict JSON. What JSON has no form for is named by its type, or refused if `where` names it."""
    value = plain(value)
    if isinstance(value, list):
        return [strict_json(item, where) for item in value]
    if isinstance(value, dict):
        return {str(key): strict_json(item, where) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if where:
        raise RepriseError(f"{where}: {type(value).__name__}: expected numbers, texts, lists or dicts of them")
    return f"<{type(value).__name__}>"


def csv_text(data: Any, where: str = "table") -> str:
    """A DataFrame, or a dict of equally long columns, as CSV with \\n line ends.

    A DataFrame's index is written unless it only counts the rows. `where` names the data in errors.
    """
    if hasattr(data, "to_csv"):
        return data.to_csv(index=type(data.index).__name__ != "RangeIndex", lineterminator="\n")
    if not isinstance(data, dict) or not data:
        raise RepriseError(f"{where}: data is {type(data).__name__}: expected a DataFrame or a dict of columns")
    columns = {key: plain(column) for key, column in data.items()}
    sizes = {key: len(column) if isinstance(column, list) else "no list" for key, column in columns.items()}
    if len(set(sizes.values())) != 1 or "no list" in sizes.values():
        raise RepriseError(f"{where}: columns of {sizes}: expected lists of one length")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


def png_bytes(fig: Any) -> bytes:
    """The figure as PNG without date or software; with a palette of 256 colours where that saves a large file."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": None})
    if buffer.tell() <= PNG_BYTES:
        return buffer.getvalue()
    from PIL import Image

    small = io.BytesIO()
    Image.open(buffer).convert("RGB").quantize(256).save(small, format="PNG", optimize=True)
    return min(buffer.getvalue(), small.getvalue(), key=len)
