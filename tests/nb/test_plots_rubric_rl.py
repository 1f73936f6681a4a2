"""The numbers behind the pictures are those of the paired t interval; the pictures take them."""

import pandas as pd
import pytest

from reprise.nb.plots import rubric_rl as plots
from reprise.stats import paired_t_interval

FRAME = pd.DataFrame(
    [
        {"method": method, "seed": seed, "step": step, "typed": value + seed * step}
        for method, value in (("flat", 1.0), ("GEAR", 3.0))
        for seed in (1, 2, 4)
        for step in (0, 1)
    ]
)


def test_intervals_are_over_the_seeds_of_each_group():
    table = plots.intervals(FRAME, "typed", ["method", "step"]).set_index(["method", "step"])
    assert table.loc[("flat", 0), ["mean", "low", "high"]].tolist() == [1, 1, 1]
    assert table.loc[("GEAR", 1)].tolist() == pytest.approx(list(paired_t_interval([4.0, 5.0, 7.0])))


def test_gaps_are_paired_by_seed():
    (row,) = plots.gaps(FRAME[FRAME.step == 1], [("GEAR", "flat")], "typed").to_dict("records")
    assert row == {"better": "GEAR", "worse": "flat", "mean": 2, "low": 2, "high": 2}


def test_a_forest_and_a_map_draw_every_row():
    from matplotlib import pyplot as plt

    table = pd.DataFrame(
        {
            "better": "a",
            "worse": "b",
            "condition": ["x", "y"],
            "mean": [1.0, 0.0],
            "low": [0.5, -1.0],
            "high": [2.0, 1.0],
        }
    )
    fig = plots.forest(table, "title", "points")
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == ["x", "y"]
    plt.close(fig)
    fig, ax = plt.subplots()
    plots.sign_map(ax, table.assign(blind=[0.0, 0.5], edge_error=0.1), limit=4)
    assert [text.get_text() for text in ax.texts] == ["+1.0", "(+0.0)"]
    plt.close(fig)
