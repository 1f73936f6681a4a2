"""Pictures of false credit: the plane of leakage and preservation, and what reported leakages allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HARD = {"hard": "s", "hard, transitive": "v", "hard, met at 0.7": "D"}
COLOURS = ("blue", "sky", "green", "orange", "purple", "black")  # of populations


def plane(rows: Any, reported: Any, mix: str) -> Figure:
    """Preservation against leakage for one mix of edge types, beside what GEAR preserves above hard gating in all.

    Args:
        rows: data frame with columns mix, population, aggregation, gamma (NaN for the hard ones), leakage,
            preservation.
        reported: data frame with columns aggregation, leakage, preservation.
        mix: drawn in the plane.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8.3, 3.3), width_ratios=(1.35, 1))
    own = rows[rows.mix == mix]
    for colour, (name, group) in zip(COLOURS, own.groupby("population", sort=False), strict=False):
        path = group[group.gamma.notna()].sort_values("gamma")
        left.plot(path.leakage, path.preservation, "o-", markersize=3, color=PALETTE[colour], label=name)
        default = path[path.gamma == 1]
        left.plot(default.leakage, default.preservation, "o", markersize=8, color=PALETTE[colour])
        for method, marker in HARD.items():
            point = group[group.aggregation == method]
            left.plot(point.leakage, point.preservation, marker, color=PALETTE[colour], markersize=5)
    left.plot(reported.leakage, reported.preservation, "*", color=REPORTED, markersize=12, label="reported (table 2)")
    for row in reported.itertuples():
        place = {
            "xytext": (-8, 5) if row.preservation > 0.9 else (8, -3),
            "ha": "right" if row.preservation > 0.9 else "left",
        }
        name = {"gear": "GEAR"}.get(row.aggregation, row.aggregation)
        left.annotate(
            name, (row.leakage, row.preservation), textcoords="offset points", size=8.5, color=REPORTED, **place
        )
    left.set(xlabel=f"leakage L ({mix} edges)", ylabel="preservation P", xlim=(-0.005, 0.125), ylim=(0, 1.05))
    left.legend(fontsize=8.5, loc="lower right")
    kept = rows.set_index(["mix", "population", "aggregation"]).preservation.unstack()
    for row, (method, marker) in enumerate(HARD.items()):
        difference = kept["gear 1"] - kept[method]
        height = row + 0.06 * (difference.reset_index().mix.map(list(dict.fromkeys(rows.mix)).index) - 1)
        names = list(dict.fromkeys(rows.population))
        colours = [PALETTE[COLOURS[names.index(name)]] for name in difference.reset_index().population]
        right.scatter(difference, height, marker=marker, c=colours, s=22)
    printed = reported.set_index("aggregation").preservation
    right.plot(printed["gear"] - printed["hard"], -0.55, "*", color=REPORTED, markersize=12)
    right.axvline(0, color=REPORTED, linewidth=0.8)
    right.set_yticks([-0.55, *range(len(HARD))], ["reported", *HARD])
    right.set(ylim=(2.4, -0.9), xlabel="P of GEAR minus P of hard gating")
    return fig


def allowed(curves: Any, shares: Any) -> Figure:
    """Leakage over gamma beside the shares of leaked mass that the reported values leave.

    Args:
        curves: data frame indexed by gamma; column "reported", and one column a fit or a population.
        shares: data frame with columns what, low, high, edges: a range of shares of the leaked mass, and the share of
            all edges with which it is compared.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8.3, 3.0), width_ratios=(1.25, 1))
    fits = [name for name in curves.columns if name.startswith("fit")]
    for name in curves.columns.difference(["reported", *fits], sort=False):
        left.plot(curves.index, curves[name], color="#bbbbbb", linewidth=1, label=None)
    left.plot([], [], color="#bbbbbb", linewidth=1, label="simulated populations")
    for name, colour in zip(fits, ("orange", "green"), strict=False):
        left.plot(curves.index, curves[name], "o-", color=PALETTE[colour], markersize=4, label=name)
    left.plot(curves.index, curves.reported, "*", color=REPORTED, markersize=11, label="reported (table 18)")
    left.set(ylim=(2e-5, 0.15), yscale="log", xlabel="exponent on the retentions, gamma", ylabel="leakage L")
    left.legend(fontsize=8.5, loc="lower left")
    for row, share in enumerate(shares.itertuples()):
        right.barh(row, 100 * (share.high - share.low), 0.4, left=100 * share.low, color=PALETTE["blue"])
        right.plot(100 * share.edges, row, "|", color=REPORTED, markersize=22, markeredgewidth=2.5)
    right.plot(
        [], [], "|", color=REPORTED, markersize=12, markeredgewidth=2.5, label="their share of all edges (section 4.7)"
    )
    right.plot([], [], "s", color=PALETTE["blue"], label="share of leaked mass that fits")
    right.set_yticks(range(len(shares)), list(shares.what))
    right.set(xlim=(0, 100), ylim=(len(shares) - 0.4, -0.9), xlabel="share (%)", ylabel="parents of the child")
    right.legend(fontsize=8.5, loc="upper right")
    return fig
