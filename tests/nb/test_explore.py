"""Controls and figures look the same with and without a person at the front end."""

import pytest

from reprise.errors import RepriseError
from reprise.nb import explore, style


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    for name in ("REPRISE_WIDGETS", *explore.FRONT_ENDS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "environment, live",
    [
        ({}, False),
        ({"JPY_SESSION_NAME": "a.ipynb"}, True),
        ({"VSCODE_PID": "1"}, True),
        ({"COLAB_RELEASE_TAG": "r"}, True),
        ({"REPRISE_WIDGETS": "1"}, True),
        ({"REPRISE_WIDGETS": "0", "JPY_SESSION_NAME": "a.ipynb"}, False),
    ],
)
def test_a_person_is_recognised_by_the_front_end(environment, live, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert explore.live() is live


def test_without_a_person_the_function_is_called_once_with_the_defaults():
    calls = []
    result = explore.explore(
        lambda k, lam, rule: calls.append((k, lam, rule)), k=(3, 1, 9), lam=(0.6, 0.0, 1.0), rule=("soft", ["soft"])
    )
    assert calls == [(3, 0.6, "soft")] and result is None


def test_what_the_function_returns_is_shown(capsys):
    explore.explore(lambda k: {"k": k}, k=(3, 1, 9))
    assert capsys.readouterr().out == "{'k': 3}\n"


def test_with_a_person_there_is_a_control_for_each_parameter(monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.setenv("REPRISE_WIDGETS", "1")
    shown, calls = [], []
    monkeypatch.setattr("IPython.display.display", shown.append)
    explore.explore(
        lambda k, lam, rule: calls.append((k, lam, rule)),
        k=(3, 1, 9),
        lam=(0.6, 0.0, 1.0),
        rule=("soft", ["soft", "hard"]),
    )
    k, lam, rule, _ = shown[0].children
    assert [type(widget).__name__ for widget in (k, lam, rule)] == ["IntSlider", "FloatSlider", "Dropdown"]
    assert (k.min, k.max, lam.step, rule.options) == (1, 9, 0.01, ("soft", "hard"))
    assert not k.continuous_update and not lam.continuous_update
    k.value = 5
    assert calls == [(3, 0.6, "soft"), (5, 0.6, "soft")]


@pytest.mark.parametrize(
    "controls, message",
    [
        ({"n": (3, 1, 9)}, "control 'n': expected a parameter of draw: k"),
        ({"k": (10, 1, 9)}, r"k=\(10, 1, 9\): expected a default in \[1, 9\]"),
        ({"k": ("a", ["b"])}, "expected a default among"),
        ({"k": 3}, r"k=3: expected \(default, low, high\)"),
        ({"k": ("a", [])}, r"expected \(default, low, high\)"),
    ],
)
def test_a_bad_control_is_named(controls, message):
    def draw(k):
        raise AssertionError("drawn")

    with pytest.raises(RepriseError, match=message):
        explore.explore(draw, **controls)


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    return figure.add_subplot()


def test_the_style_sets_defaults_matplotlib_knows():
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context():
        style.use()
        assert matplotlib.rcParams["figure.dpi"] == 100
        assert matplotlib.rcParams["axes.prop_cycle"].by_key()["color"] == list(style.PALETTE.values())


def test_a_reported_number_is_a_line_and_a_range_a_band(ax):
    style.reported(ax, 0.5)
    style.reported(ax, (1.0, 2.0), axis="x", label="reported range")
    assert list(ax.lines[0].get_ydata()) == [0.5, 0.5]
    band = ax.patches[0]
    assert (band.get_x(), band.get_width()) == (1.0, 1.0)
    assert [text.get_label() for text in (ax.lines[0], band)] == ["reported", "reported range"]
    with pytest.raises(RepriseError, match="^axis='z'"):
        style.reported(ax, 1, axis="z")


def test_reported_against_here_draws_every_numeric_claim_and_marks_what_is_off_the_scale(ax):
    rows = [
        {"id": "a.b.near", "deviation": 0.25, "status": "reproduced"},
        {"id": "a.b.words", "deviation": None, "status": "reproduced"},
        {"id": "a.b.far", "deviation": -40.0, "status": "not reproduced"},
    ]
    drawn = style.reported_vs_here(ax, rows)
    assert drawn == {
        "id": ["a.b.near", "a.b.far"],
        "deviation": [0.25, -40.0],
        "status": ["reproduced", "not reproduced"],
    }
    assert [(dot.get_xdata()[0], dot.get_marker()) for dot in ax.lines[1:]] == [(0.25, "o"), (-3.0, "<")]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a.b.near", "a.b.far"]
