"""Tables of reported figures, as printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprise.nb.paths import root

if TYPE_CHECKING:
    import pandas as pd


def read(system: str, name: str) -> pd.DataFrame:
    """data/reported/<system>/<name>.csv; every cell is a text, since its digits are its precision, "" where empty."""
    import pandas as pd

    return pd.read_csv(root() / "data" / "reported" / system / f"{name}.csv", dtype=str, keep_default_na=False)
