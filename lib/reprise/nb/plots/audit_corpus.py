"""Pictures of a corpus of labelled runs: what was kept, where errors lie, how long they stay open, what votes find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOMAINS = {"math": "blue", "coding": "orange", "search": "green"}
FATES = {
    "kept": ("kept", "green"),
    "outcome": ("failed the task", "vermilion"),
    "integrity": ("tool error", "purple"),
    "coherence": ("erred and recovered", "orange"),
    "recovered": ("system recovered", "orange"),
    "no fitting category": ("no fault fits the turn", "sky"),
    "fault repaired, failed later": ("repaired, failed later", "purple"),
}
STAGES = {"runs": "runs on the way to a safe one", "failures": "injected faults (search: natural failures)"}


def funnel(rows: Any, title: str) -> Figure:
    """Shares of what became of runs and failures, one bar a domain.

    Args:
        rows: data frame with columns domain, stage, fate, count.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8.6, 3.0), sharey=True)
    for ax, (stage, label) in zip(axes, STAGES.items(), strict=True):
        table = rows[rows.stage == stage].pivot_table(index="domain", columns="fate", values="count", aggfunc="sum")
        table = table.reindex([name for name in DOMAINS if name in table.index]).fillna(0)
        left = 0 * table.iloc[:, 0]
        shown = [fate for fate in FATES if fate in table] + sorted(set(table) - set(FATES))
        for fate in shown:
            name, colour = FATES.get(fate, (fate, "black"))
            share = 100 * table[fate] / table.sum(axis=1)
            ax.barh(table.index, share, left=left, color=PALETTE[colour], label=name, edgecolor="white")
            for height, (start, width, count) in enumerate(zip(left, share, table[fate], strict=True)):
                if width > 7:
                    ax.text(
                        start + width / 2, height, f"{count:.0f}", ha="center", va="center", color="white", size=8.5
                    )
            left = left + share
        ax.set(xlabel=f"% of {label}", xlim=(0, 100))
        ax.grid(axis="y", visible=False)
        ax.legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[0].invert_yaxis()
    fig.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return fig


def positions(rows: Any, reported: dict[str, str], title: str) -> Figure:
    """Where along its run each error lies, a panel a domain, the reported shape in words.

    Args:
        rows: data frame with columns domain, label, turns.
        reported: domain -> words.
        title: the finding.
    """
    import matplotlib.pyplot as plt
    import numpy as np

    names = [name for name in DOMAINS if (rows.domain == name).any()]
    fig, axes = plt.subplots(1, len(names), figsize=(8.6, 2.9), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        own = rows[rows.domain == name]
        place = own.label / own.turns
        ax.hist(
            place, bins=np.linspace(0, 1, 11), weights=np.full(len(own), 100 / len(own)), color=PALETTE[DOMAINS[name]]
        )
        ax.axvline(
            place.mean(), color=PALETTE["black"], linestyle="--", linewidth=1.2, label=f"mean {place.mean():.2f}"
        )
        ax.set_title(f"{name} (n = {len(own)})\nreported: {reported.get(name, 'nothing')}", size=9.5, weight="normal")
        ax.set(xlabel="decisive step / turns", xlim=(0, 1))
        ax.legend(fontsize=8.5, loc="upper right")
    axes[0][0].set_ylabel("% of failures")
    fig.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return fig


def slack(rows: Any, title: str) -> Figure:
    """How many turns after the error the system could still have recovered by itself, and what each reading labels.

    Args:
        rows: data frame with columns domain, label, literal, slack.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.2), width_ratios=(1.25, 1))
    longest = int(rows.slack.max())
    names = [name for name in DOMAINS if (rows.domain == name).any()]
    for name in names:
        own = rows[rows.domain == name].slack
        share = [100 * (own > gap).mean() for gap in range(-1, longest + 1)]
        left.step(range(-1, longest + 1), share, where="post", color=PALETTE[DOMAINS[name]], label=name)
    left.set(
        xlabel="turns after the decisive error", ylabel="% of failures not yet lost", ylim=(0, 103), xlim=(-1, longest)
    )
    left.axvline(0, color=REPORTED, linewidth=0.8)
    left.annotate("the error", (0, 4), textcoords="offset points", xytext=(-4, 0), rotation=90, ha="right", size=8.5)
    left.legend(fontsize=9)
    kinds = {
        "literal": "definition as printed",
        "no_return": "point of no return",
        "earliest_flip": "first error that flips",
    }
    for height, kind in enumerate(kinds):
        for offset, name in enumerate(names):
            own = rows[rows.domain == name]
            share = 100 * (own[kind] == own.label).mean()
            place = height + 0.25 * (offset - 1)
            right.barh(place, share, height=0.22, color=PALETTE[DOMAINS[name]])
            right.text(share + 1, place, f"{share:.0f}", va="center", size=8)
    right.set_yticks(range(len(kinds)), kinds.values())
    right.set(xlabel="% that name the labelled step", xlim=(0, 112))
    right.grid(axis="y", visible=False)
    fig.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return fig


def votes(rows: Any, title: str) -> Figure:
    """Precision and yield of propose-and-verify against a majority, as judges come to err together.

    Args:
        rows: data frame with columns hit, accuracy, shared, seed, yielded, precision, majority; bars span the seeds.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    panels = rows[["hit", "accuracy"]].drop_duplicates().itertuples(index=False)
    panels = list(panels)
    fig, axes = plt.subplots(1, len(panels), figsize=(8.0, 2.9), sharey=True, squeeze=False)
    lines = {"precision": ("propose and verify: right of those labelled", "blue", "-"),
             "yielded": ("propose and verify: labelled at all", "sky", ":"),
             "majority": ("majority of the proposers: right", "vermilion", "-")}  # fmt: skip
    for ax, (hit, accuracy) in zip(axes[0], panels, strict=True):
        own = rows[(rows.hit == hit) & (rows.accuracy == accuracy)].groupby("shared")
        for name, (text, colour, style) in lines.items():
            mean = 100 * own[name].mean()
            ends = [mean - 100 * own[name].min(), 100 * own[name].max() - mean]
            ax.errorbar(mean.index, mean, ends, ls=style, marker="o", ms=3.5, lw=1.5, color=PALETTE[colour], label=text)
        ax.set_title(f"proposers {hit:g}, criteria {accuracy:g}", size=9.5, weight="normal")
        ax.set(xlabel="errors in common", xlim=(0, 1), ylim=(25, 102))
    axes[0][0].set_ylabel("% of failures")
    fig.legend(*axes[0][0].get_legend_handles_labels(), fontsize=8.5, ncols=3, loc="outside lower center")
    fig.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return fig
