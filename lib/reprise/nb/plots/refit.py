"""Pictures of weight deltas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from reprise.errors import RepriseError
from reprise.nb.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEMES = {
    "light": {"page": "#ffffff", "ink": "#1f2328", "still": "#edf0f3", "bar": "#b6bec7"},
    "dark": {"page": "#0d1117", "ink": "#e6edf3", "still": "#1c222a", "bar": "#4a535e"},
}


def step_and_cost(moved: np.ndarray, shares: Mapping[str, float], theme: str = "light") -> Figure:
    """One matrix after one optimiser step beside the bytes that sending the step takes.

    Args:
        moved: [rows, columns] integers, by how many places each stored value moved on the number line; 0 where the
            step was rounded away.
        shares: label -> bytes as a share of the whole checkpoint, drawn from top to bottom; the last one stands out.
        theme: "light" or "dark".
    """
    import matplotlib.pyplot as plt

    if theme not in THEMES:
        raise RepriseError(f"theme={theme!r}: expected one of {', '.join(THEMES)}")
    colours = THEMES[theme]
    up, down = PALETTE["orange"], PALETTE["sky"]
    with plt.rc_context({"text.color": colours["ink"], "axes.labelcolor": colours["ink"], "axes.grid": False}):
        fig, (left, right) = plt.subplots(
            1, 2, figsize=(10, 4.2), width_ratios=(1, 1.25), facecolor=colours["page"], layout="constrained"
        )
        image = np.full((*moved.shape, 3), _rgb(colours["still"]))
        image[moved > 0], image[moved < 0] = _rgb(up), _rgb(down)
        left.imshow(image, interpolation="nearest")
        left.set_xticks([])
        left.set_yticks([])
        left.set_xlabel(f"a {moved.shape[0]} x {moved.shape[1]} weight matrix: orange up, blue down")
        title = f"One optimiser step changes {100 * (moved != 0).mean():.1f} % of these weights"
        left.set_title(title, loc="left", fontsize=12, fontweight="bold")
        values, names = [100 * x for x in shares.values()], list(shares)
        bars = [colours["bar"]] * (len(values) - 1) + [PALETTE["green"]]
        right.barh(names, values, color=bars, height=0.62)
        for row, value in enumerate(values):
            right.text(value + 1, row, f"{value:.3g} %", va="center", fontsize=12, fontweight="bold")
        right.invert_yaxis()
        right.set_xlim(0, 116)
        right.set_xlabel("bytes to send, % of the checkpoint")
        title = f"Sent exactly, it takes 1/{1 / list(shares.values())[-1]:.0f} of the checkpoint"
        right.set_title(title, loc="left", fontsize=12, fontweight="bold")
        for ax in (left, right):
            ax.set_facecolor(colours["page"])
            ax.spines[:].set_visible(False)
            ax.tick_params(colors=colours["ink"], length=0, labelsize=10.5)
    return fig


def _rgb(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
