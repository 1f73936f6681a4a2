"""A bar for each condition, at its share, in the colour of what its note is."""

import matplotlib.pyplot as plt
import pandas as pd

from reprise.nb import style
from reprise.nb.plots.memory_lm import COLOURS, SAYS, probe_bars


def test_bars_stand_at_their_shares_and_are_named():
    names = ["none", "five, other words", "irrelevant line", "five + irrelevant", "sql: scrambled"]
    shares = pd.DataFrame({"condition": names, "right": [0.2, 1.0, 0.0, 0.5, 0.4]}).assign(low=0.0, high=1.0)
    fig, ax = plt.subplots()
    probe_bars(ax, shares, "title", chance=0.2)
    assert [bar.get_width() for bar in ax.patches] == shares.right.tolist()
    colours = [bar.get_facecolor()[:3] for bar in ax.patches]
    assert len(set(colours)) == 4 and colours[2] == colours[4]
    assert [text.get_text() for text in ax.get_yticklabels()] == [SAYS.get(name, name) for name in names]
    assert COLOURS["none"] == style.REPORTED
    plt.close(fig)
