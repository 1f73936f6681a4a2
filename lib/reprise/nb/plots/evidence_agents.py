"""Pictures of agents with known faults and of learners: which diagnostic moves, what skipping costs, what a reward
teaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"act": PALETTE["vermilion"], "stop": PALETTE["orange"], "read": PALETTE["blue"], "other": PALETTE["black"]}


def matrix(ax: Axes, table: Any, expected: Callable[[str, str], bool], colour: str, largest: float = 100) -> None:
    """Numbers in cells, tinted by size; cells that the design lets move are framed.

    Args:
        ax: where.
        table: data frame, one row an agent, one column a quantity.
        expected: (row, column) -> whether this cell may differ from a faultless agent's.
        largest: the value of the full tint.
    """
    import matplotlib.pyplot as plt

    for y, (name, row) in enumerate(table.iterrows()):
        for x, (column, value) in enumerate(row.items()):
            shown = 0.0 if value != value else max(0.0, min(1.0, value / largest))
            box = dict(facecolor=colour, alpha=0.7 * shown, linewidth=0)
            ax.add_patch(plt.Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, **box))
            if expected(name, column):
                frame = dict(fill=False, edgecolor=PALETTE["black"], linewidth=1.1)
                ax.add_patch(plt.Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, **frame))
            text = "none" if value != value else f"{value:.0f}" if largest == 100 else f"{value:.1f}"
            ax.text(x, y, text, ha="center", va="center", fontsize=9)
    ax.set_xticks(range(len(table.columns)), table.columns)
    ax.set_yticks(range(len(table)), table.index)
    ax.set(xlim=(-0.5, len(table.columns) - 0.5), ylim=(len(table) - 0.5, -0.5))
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def skipping(table: Any, skip: float) -> Figure:
    """Success by number of required reads: told the facts, left to find them, and (1 - q)^k.

    Args:
        table: data frame with columns reads, static, interactive, low, high (percent; the last two an interval).
        skip: q.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.0, 3.4))
    ax.plot(table.reads, table.static, "s-", color=PALETTE["green"], label="told every fact")
    ax.plot(table.reads, 100 * (1 - skip) ** table.reads, "--", color=REPORTED, label=f"(1 - {skip})^k")
    error = [table.interactive - table.low, table.high - table.interactive]
    ax.errorbar(table.reads, table.interactive, error, fmt="o", color=PALETTE["blue"], label="left to find them, 95 %")
    ax.set_xticks(list(table.reads))
    ax.set(xlabel="reads that the case requires, k", ylabel="right (%)", ylim=(0, 105))
    ax.legend(fontsize=9)
    return fig


def gains(table: Any) -> Figure:
    """ECS without and with the wrapper, by policy: over all cases, and over the workflows.

    Args:
        table: data frame with columns agent, part, without, gathered (percent, means over suites).
    """
    import matplotlib.pyplot as plt

    parts = list(dict.fromkeys(table["part"]))
    fig, axes = plt.subplots(1, len(parts), figsize=(8.2, 3.4), sharey=True)
    for ax, part in zip(axes, parts, strict=True):
        rows = table[table["part"] == part].reset_index(drop=True)
        for y, row in rows.iterrows():
            ax.plot([row["without"], row.gathered], [y, y], color=REPORTED, linewidth=1.5, zorder=1)
            ax.text(102, y, f"{row.gathered - row['without']:+.0f}", va="center", fontsize=9)
        ax.plot(rows["without"], rows.index, "o", color=PALETTE["orange"], label="alone")
        ax.plot(rows.gathered, rows.index, "D", color=PALETTE["blue"], markersize=5, label="evidence gathered for it")
        ax.set_yticks(range(len(rows)), rows.agent)
        ax.set(xlabel=f"ECS (%), {part}", xlim=(0, 112), ylim=(len(rows) - 0.5, -0.5))
    axes[0].legend(fontsize=8.5, loc="lower left")
    return fig


def phases(points: Any, regions: Any) -> Figure:
    """Which strategy pays, over bad facts and read cost, and what learners chose.

    Args:
        points: data frame with columns bad, cost, learnt (strategy of a learner), best.
        regions: data frame with columns bad, cost, best on a full grid of both.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    names = ["act", "stop", "read"]
    table = regions.assign(best=regions.best.map(names.index)).pivot(index="cost", columns="bad", values="best")
    fig, ax = plt.subplots(figsize=(7.2, 4.0))
    tints = ListedColormap([COLOURS[name] for name in names])
    ax.pcolormesh(table.columns, table.index, table.values, cmap=tints, alpha=0.22, shading="nearest", vmin=0, vmax=2,
                  rasterized=True)  # fmt: skip
    for name in [*names, "other"]:
        rows = points[points.learnt == name].drop_duplicates(["bad", "cost"])
        shape = dict(act="^", stop="s", read="o", other="x")[name]
        if len(rows):
            ax.plot(rows.bad, rows.cost, shape, color=COLOURS[name], markersize=8, linestyle="none", label=_said(name))
    ax.set(xscale="log", yscale="log", xlabel="chance that a fact is bad, v", ylabel="cost of a read, c")
    ax.set_xticks(sorted(set(points.bad)), [f"{v:g}" for v in sorted(set(points.bad))])
    ax.set_yticks(sorted(set(points.cost)), [f"{c:g}" for c in sorted(set(points.cost))])
    ax.minorticks_off()
    ax.legend(fontsize=8.5, title="learners (points); tint: the formulas", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def _said(name: str) -> str:
    return {"act": "act at once", "stop": "stop at once", "read": "read to the first bad", "other": "another"}[name]


def played(table: Any, columns: Sequence[str], predicted: float) -> Figure:
    """What the policies of three rewards do in the real environment.

    Args:
        table: data frame, one row a reward, one column a rate in percent.
        columns: the rates to draw.
        predicted: BSR of reading to the first bad fact.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(columns), figsize=(8.2, 2.5), sharey=True)
    for ax, column in zip(axes, columns, strict=True):
        for y, (name, value) in enumerate(table[column].items()):
            if value == value:
                ax.barh(y, value, height=0.55, color=COLOURS[name.split(":")[0]], alpha=0.75)
            said = "undefined" if value != value else f"{value:.0f}"
            ax.text(3 if value != value else value + 3, y, said, va="center", fontsize=9)
        if column == "BSR":
            ax.axvline(predicted, color=REPORTED, linestyle="--", linewidth=1.2)
            ax.text(predicted, -0.75, "1 - 1/K", ha="center", fontsize=8.5, color=REPORTED)
        ax.set_yticks(range(len(table)), table.index)
        ax.set(xlabel=f"{column} (%)", xlim=(0, 122), xticks=[0, 50, 100], ylim=(len(table) - 0.5, -0.9))
    return fig


def rewards(table: Any) -> Figure:
    """Stopping early and acting early by the cost of a read, for two rewards.

    Args:
        table: data frame with columns paid, seed, cost, bsr, par, v0, v1 (percent).
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(8.6, 3.0), sharey=True)
    names = {"bsr": "stopped early (BSR, %)", "v0": "ECS of V0 (%)", "v1": "ECS of V1 (%)"}
    for ax, (column, label) in zip(axes, names.items(), strict=True):
        for (paid, rows), colour in zip(table.groupby("paid"), ("blue", "orange"), strict=True):
            mean = rows.groupby("cost")[column].mean()
            ax.plot(mean.index, mean.values, "-", color=PALETTE[colour], label=f"paid for the {paid}")
            ax.plot(rows.cost, rows[column], "o", color=PALETTE[colour], markersize=4, alpha=0.6)
        ax.set(xlabel="cost of a read", title="", ylim=(-4, 104))
        ax.set_ylabel(label)
        ax.tick_params(labelleft=True)
    axes[0].legend(fontsize=8.5, loc="center right")
    return fig
