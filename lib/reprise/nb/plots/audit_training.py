"""Pictures of auditors trained in one stage or two: scores with intervals, rewards by step, both sides of the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "BPPO then GRPO": PALETTE["vermilion"],
    "BPPO": PALETTE["orange"],
    "GRPO": PALETTE["blue"],
    "GRPO, 70 % Safe": PALETTE["sky"],
    "SFT": PALETTE["green"],
    "SFT then GRPO": PALETTE["green"],
}
OTHER = "#777777"


# name here -> row of the paper's ablation or of its method baselines
REPORTED_AS = {
    "base": "base",
    "BPPO": "stage 1 only",
    "GRPO": "stage 2 only",
    "BPPO then GRPO": "both stages",
    "perplexity": "Perplexity-7B",
    "reflection": "Reflexion-7B",
    "tree of thought": "ToT-7B",
    "post hoc": "AgentDebug-7B",
}


def with_reported(scores: Sequence[Mapping], reported: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Scores in percent with the F1 that the paper reports for the same auditor, NaN where it has none.

    Args:
        scores: rows with arm, F1, low, high, FAR, far_low, far_high.
        reported: tables "ablation" (by arm) and "baselines" (by method) with a column "Overall F1".
    """
    import pandas as pd

    printed = reported["ablation"].set_index("arm")["Overall F1"].to_dict()
    printed |= reported["baselines"].set_index("method")["Overall F1"].to_dict()
    frame = pd.DataFrame(scores).round(2)
    return frame.assign(reported=[float(printed.get(REPORTED_AS.get(arm), "nan")) for arm in frame.arm])


def arms(scores: pd.DataFrame) -> Figure:
    """F1 and false-alarm rate of every auditor with 95 % intervals; where the paper reports an F1 for one, its diamond.

    Args:
        scores: columns arm, F1, low, high, FAR, far_low, far_high, reported (NaN for none), in the order of drawing.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 0.21 * len(scores) + 1.1), sharey=True)
    for row, each in enumerate(scores.itertuples()):
        colour = PALETTE["purple"] if "permuted" in each.arm else LOOKS.get(each.arm, OTHER)
        for ax, value, low, high in (
            (left, each.F1, each.low, each.high),
            (right, each.FAR, each.far_low, each.far_high),
        ):
            ax.plot([low, high], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
            ax.plot(value, row, "o", color=colour, markersize=5)
    left.plot(scores.reported, range(len(scores)), "D", color=REPORTED, markersize=6, markerfacecolor="none")
    left.set_yticks(range(len(scores)), scores.arm, fontsize=8)
    left.invert_yaxis()
    left.set(xlim=(-2, 102), xlabel="exact-step F1 (%); diamond: paper, 7B")
    right.set(xlim=(-2, 102), xlabel="safe runs with any alarm (%)")
    return fig


MARKS = {"BPPO then GRPO": "o", "BPPO": "s", "GRPO": "^", "SFT": "D", "perplexity": "P", "reflection": "X"}


def domains(scores: pd.DataFrame) -> Figure:
    """F1 against false alarms, a panel a domain: good auditors stand at the top left.

    Args:
        scores: columns arm, domain, F1, FAR; arms that `MARKS` does not name are left out.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(scores.domain))
    fig, axes = plt.subplots(1, len(names), figsize=(7.6, 2.4), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        rows = scores[scores.domain == name].set_index("arm")
        for arm, mark in MARKS.items():
            if arm in rows.index:
                colour = LOOKS.get(arm, OTHER)
                ax.plot(rows.FAR[arm], rows.F1[arm], mark, color=colour, markersize=7, label=arm, clip_on=False)
        ax.set(xlim=(-3, 103), ylim=(-3, 103), xlabel="safe runs with any alarm (%)", title=name)
    axes[0, 0].set_ylabel("exact-step F1 (%)")
    axes[0, -1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def collapse(curves: pd.DataFrame, smooth: int) -> Figure:
    """Alarms and reward of the policy gradient from the base, with what the two constant policies earn (always Safe
    2p - 1, always the right alarm 1 - 2p); and the share of groups without a gradient, with stage 1 too. A line a seed.

    Args:
        curves: columns arm, seed, step, alarms, reward, dead and p_safe.
        smooth: width of a centred moving average, in steps.
    """
    import matplotlib.pyplot as plt

    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(7, 2.1))
    for (arm, p), rows in curves.groupby(["arm", "p_safe"], sort=False):
        colour, first = LOOKS[arm], rows.seed.iloc[0]
        for seed, line in rows.groupby("seed"):
            drawn = line[["alarms", "reward", "dead"]].rolling(smooth, center=True, min_periods=1).mean()
            style = {"color": colour, "linewidth": 1.1}
            right.plot(line.step, 100 * drawn.dead, label=arm if seed == first else None, **style)
            if arm.startswith("GRPO"):
                label = f"{100 * p:.0f} % Safe" if seed == first else None
                left.plot(line.step, 100 * drawn.alarms, label=label, **style)
                middle.plot(line.step, drawn.reward, **style)
        if arm.startswith("GRPO"):
            middle.axhline(2 * p - 1, color=colour, linestyle="--", linewidth=1)
            middle.axhline(1 - 2 * p, color=colour, linestyle=":", linewidth=1)
    left.set(xlabel="step", ylabel="responses: alarm (%)", ylim=(-3, 103))
    middle.set(xlabel="step", ylabel="mean reward", ylim=(-1.03, 1.03))
    right.set(xlabel="step", ylabel="dead groups (%)", ylim=(-3, 103))
    middle.plot([], [], "--", color=OTHER, linewidth=1, label="always Safe")
    middle.plot([], [], ":", color=OTHER, linewidth=1, label="always alarm, right")
    left.legend(fontsize=7)
    middle.legend(fontsize=7, loc="lower right")
    right.legend(fontsize=7, loc="lower right")
    return fig


def boundary(ax: Axes, sides: pd.DataFrame) -> None:
    """P(alarm) one turn before an error and at it: a thin line a seed, a thick one for the mean.

    Args:
        ax: where.
        sides: columns arm, seed, before, at_error, as shares.
    """
    looks = {"base": OTHER, "BE only": PALETTE["vermilion"], "BS only": PALETTE["blue"], "both sides": PALETTE["black"]}
    for arm, rows in sides.groupby("arm", sort=False):
        colour = looks[arm]
        for each in rows.itertuples():
            ax.plot([0, 1], [100 * each.before, 100 * each.at_error], color=colour, linewidth=0.7, alpha=0.6)
        ends = [100 * rows.before.mean(), 100 * rows.at_error.mean()]
        ax.plot([0, 1], ends, "o-", color=colour, linewidth=2.2, label=arm)
    ax.set_xticks([0, 1], ["before the error", "at the error"])
    ax.set(xlim=(-0.2, 1.2), ylim=(-3, 103), ylabel="probability of an alarm (%)")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def stage_one(curves: pd.DataFrame, smooth: int) -> Figure:
    """Preference accuracy beside the probability of the chosen response, with and without the anchor.

    Args:
        curves: columns anchor (bool), seed, step, preference, chosen (mean log-probability of a chosen response).
        smooth: width of a centred moving average, in steps.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.1))
    looks: Mapping[bool, tuple[str, str]] = {
        False: (PALETTE["blue"], "the paper's loss"),
        True: (PALETTE["orange"], "with our anchor"),
    }
    for (anchor, _), rows in curves.groupby(["anchor", "seed"]):
        colour, label = looks[bool(anchor)]
        drawn = rows[["preference", "chosen"]].rolling(smooth, center=True, min_periods=1).mean()
        known = label in left.get_legend_handles_labels()[1]
        left.plot(rows.step, 100 * drawn.preference, color=colour, linewidth=1.1, label=None if known else label)
        right.plot(rows.step, drawn.chosen, color=colour, linewidth=1.1)
    left.set(xlabel="step", ylabel="pairs preferred (%)", ylim=(0, 103))
    right.set(xlabel="step", ylabel="right response,\nlog-prob. (nats)")
    left.legend(fontsize=8, loc="lower right")
    return fig


def settings(search: pd.DataFrame) -> Figure:
    """F1 and false alarms on validation families of every setting that was run before the comparison.

    Args:
        search: columns arm, lr1, lr2, anchor, F1, FAR, invalid.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 4, figsize=(7.6, 2.3), sharey=True)
    for ax, arm in zip(axes, ("BPPO", "SFT", "GRPO", "BPPO then GRPO"), strict=True):
        rows = search[search.arm == arm]
        rate = "lr2" if "GRPO" in arm else "lr1"
        for anchor, part in rows.groupby("anchor"):
            style = "o-" if anchor or arm != "BPPO" else "s--"
            label = {"BPPO": "anchor" if anchor else "no anchor"}.get(arm, "F1")
            ax.plot(part[rate], part.F1, style, color=PALETTE["vermilion"], label=label)
            ax.plot(part[rate], part.FAR, style, color=OTHER, linewidth=1, markersize=4)
        ax.set(xscale="log", xlabel="learning rate", xlim=(2e-4, 1.5e-2))
        ax.set_title(arm, fontsize=9)
        ax.set_xticks([3e-4, 1e-3, 3e-3, 1e-2], ["3e-4", "1e-3", "3e-3", "1e-2"], fontsize=8)
        ax.set_xticks([], minor=True)
    axes[0].set(ylabel="F1 (red), false alarms\n(grey), %", ylim=(-3, 103))
    axes[0].legend(fontsize=7)
    return fig
