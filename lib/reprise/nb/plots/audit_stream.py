"""Pictures of auditing while a run happens: alarms on a timeline, false alarms promised and realised, what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from reprise.nb.style import PALETTE, REPORTED
from reprise.stats import paired_t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "per look": "vermilion",
    "run maximum": "blue",
    "run maximum of ranks": "sky",
    "martingale": "green",
    "either": "purple",
}
SEEN = {"safe": ("o", "#bbbbbb"), "alarm": ("X", PALETTE["vermilion"]), "not asked": ("o", "white")}


def timeline(rows: Any, title: str) -> Figure:
    """One line a log with the speaker who is named: dots for turns, a cross at the first alarm, rings where nobody was
    asked any more.

    Args:
        rows: data frame with columns log, turn, speaker, seen, step and labelled.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(rows.log))
    fig, ax = plt.subplots(figsize=(6.0, 0.8 + 0.24 * len(names)))
    for height, name in enumerate(names):
        run = rows[rows.log == name]
        ax.plot(run.turn, [height] * len(run), color="#dddddd", linewidth=1, zorder=1)
        for row in run.itertuples():
            marker, colour = SEEN[row.seen]
            size = 75 if row.seen == "alarm" else 32
            ax.scatter(row.turn, height, s=size, marker=marker, color=colour, edgecolor="#888888", lw=0.8, zorder=2)
            if row.labelled:
                ring = {"facecolor": "none", "edgecolor": "black", "lw": 1.2}
                ax.scatter(row.turn, height, s=170, marker="s", **ring, zorder=3)
    handles = [ax.scatter([], [], marker=m, color=c, edgecolor="#888888", label=name) for name, (m, c) in SEEN.items()]
    handles.append(ax.scatter([], [], marker="s", s=90, facecolor="none", edgecolor="black", label="label in the log"))
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
    alarms = rows[rows.seen == "alarm"].set_index("log").speaker
    ax.set_yticks(range(len(names)), [f"{name}: {alarms.get(name, 'no alarm')}" for name in names], fontsize=8)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set(xlabel="turn")
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    ax.grid(visible=False)
    return fig


def rates(frame: Any, title: str) -> Figure:
    """Realised false-alarm rate over promised one, a panel an auditor; bars are 95 % intervals over calibration sets.

    Args:
        frame: data frame with columns auditor, method, alpha, seed, far and turns.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(frame.auditor))
    fig, axes = plt.subplots(1, len(names), figsize=(1.9 * len(names) + 1.9, 2.6), sharey=True, squeeze=False)
    grid = np.linspace(0, frame.alpha.max() * 1.04, 100)
    for ax, name in zip(axes[0], names, strict=True):
        own = frame[frame.auditor == name]
        ax.plot(grid, 1 - (1 - grid) ** own.turns.mean(), ":", color=REPORTED, lw=1.2, label="independent looks")
        ax.plot(grid, grid, "--", color="black", lw=1, label="promised")
        for method, group in own.groupby("method", sort=False):
            points = [(alpha, *paired_t_interval(part.far.to_numpy())) for alpha, part in group.groupby("alpha")]
            alpha, mean, low, high = np.array(points).T
            colour = PALETTE[COLOURS[method]]
            ax.plot(alpha, mean, "o-", color=colour, ms=3.5, lw=1.4, label=method)
            ax.vlines(alpha, np.maximum(low, 0), high, color=colour, lw=1.2)
        ax.set(xlabel="promised rate", ylim=(0, 1), xlim=(0, grid[-1]))
        ax.set_title(name, fontsize=10, fontweight="normal")
    axes[0, 0].set_ylabel("safe runs with any alarm")
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def by_turn(curves: Any, alpha: float, last: Mapping[str, int], title: str) -> Figure:
    """Share of safe runs stopped after each turn; a panel a kind of run.

    Args:
        curves: data frame with columns runs (kind), method, turn and stopped.
        alpha: promised rate.
        last: mean last turn of each kind, marked.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(curves.runs))
    fig, axes = plt.subplots(1, len(kinds), figsize=(6.8, 2.4), sharey=True, squeeze=False)
    for ax, kind in zip(axes[0], kinds, strict=True):
        own = curves[curves.runs == kind]
        turns = np.arange(own.turn.max() + 1)
        ax.plot(turns, 1 - (1 - alpha) ** (turns + 1), ":", color=REPORTED, label="independent looks")
        ax.axhline(alpha, linestyle="--", color="black", lw=1, label="promised")
        for method, group in own.groupby("method", sort=False):
            ax.step(group.turn, group.stopped, where="post", color=PALETTE[COLOURS[method]], lw=1.6, label=method)
        ax.axvline(last[kind], color=REPORTED, lw=0.8, alpha=0.6)
        ax.annotate("mean end", (last[kind], 0.97), (3, 0), textcoords="offset points", size=8, color=REPORTED)
        ax.set(xlabel="turn", ylim=(0, 1))
        ax.set_title(kind, fontsize=10, fontweight="normal")
    axes[0, 0].set_ylabel("safe runs stopped so far")
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def operating(
    frame: Any, region: tuple[float, float], reported: Mapping[str, tuple[float, float]], title: str
) -> Figure:
    """Recall over realised false-alarm rate, a panel an auditor; lines join the promised rates of a method.

    Args:
        frame: data frame with columns auditor, method, alpha, far and recall.
        region: largest false-alarm rate and least recall that the paper calls deployable.
        reported: (false-alarm rate, step accuracy) by name, from the paper.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(frame.auditor))
    fig, axes = plt.subplots(1, len(names), figsize=(1.9 * len(names) + 1.9, 2.6), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        ax.fill_between([0, region[0]], region[1], 1, color=REPORTED, alpha=0.13, lw=0, label="deployable")
        for method, group in frame[frame.auditor == name].groupby("method", sort=False):
            ax.plot(group.far, group.recall, "o-", ms=3.5, lw=1.3, color=PALETTE[COLOURS[method]], label=method)
        for label, (far, recall) in reported.items():
            ax.plot(far, recall, "*", ms=9, color=REPORTED, label=label)
        ax.set(xlabel="false-alarm rate", xlim=(-0.02, 1), ylim=(0, 1))
        ax.set_title(name, fontsize=10, fontweight="normal")
    axes[0, 0].set_ylabel("first alarm at the error")
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def shifts(frame: Any, alpha: float, title: str) -> Figure:
    """False-alarm rates where fresh safe runs are not like the calibration: a panel an auditor, a line a condition.

    Args:
        frame: data frame with columns auditor, condition, method, far, low and high.
        alpha: promised rate.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    names, conditions = (list(dict.fromkeys(frame[column])) for column in ("auditor", "condition"))
    fig, axes = plt.subplots(1, len(names), figsize=(1.75 * len(names) + 2.6, 2.7), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        own = frame[frame.auditor == name]
        methods = list(dict.fromkeys(own.method))
        for place, method in enumerate(methods):
            part = own[own.method == method]
            height = np.array([conditions.index(each) for each in part.condition]) + 0.13 * (place - 2)
            ax.hlines(height, part.low, part.high, color=PALETTE[COLOURS[method]], lw=1.4)
            ax.plot(part.far, height, "o", ms=4, color=PALETTE[COLOURS[method]], label=method)
        ax.axvline(alpha, linestyle="--", color="black", lw=1)
        ax.set(xlabel="false-alarm rate", xlim=(-0.02, 1.02))
        ax.set_title(name, fontsize=10, fontweight="normal")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(conditions)), conditions)
    axes[0, 0].set_ylim(len(conditions) - 0.5, -0.5)
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def rescued(frame: Any, title: str) -> Figure:
    """Runs that an auditor turned, per hundred: rescued to the right, broken to the left, with interrupted safe runs.

    Args:
        frame: data frame with columns domain, auditor, rescued, broken (per 100 runs), interrupted (per 100 safe runs)
            and extra (turns a run).
        title: the finding.
    """
    import matplotlib.pyplot as plt

    domains = list(dict.fromkeys(frame.domain))
    count = frame.auditor.nunique()
    fig, axes = plt.subplots(1, len(domains), figsize=(7.2, 0.8 + 0.24 * count), sharey=True, squeeze=False)
    for ax, domain in zip(axes[0], domains, strict=True):
        own = frame[frame.domain == domain].reset_index(drop=True)
        _bars(ax, own)
        ax.set_title(domain, fontsize=10, fontweight="normal")
    axes[0, 0].set_yticks(range(count), own.auditor)
    axes[0, 0].set_ylim(count - 0.5, -0.5)
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def _bars(ax: Axes, own: Any) -> None:
    places = range(len(own))
    ax.barh(places, own.rescued, 0.6, color=PALETTE["green"], label="rescued, of 100 runs")
    ax.barh(places, -own.broken, 0.6, color=PALETTE["vermilion"], label="broken, of 100 runs")
    ax.plot(own.interrupted, places, "D", color="black", ms=4, label="interrupted,\nof 100 safe runs")
    ax.axvline(0, color="black", lw=0.8)
    ax.set_xlabel("runs")
    ax.grid(axis="y", visible=False)
