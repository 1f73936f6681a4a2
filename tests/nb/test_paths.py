"""Finding the checkout."""

import pytest

from reprise.nb import paths
from reprise.nb.errors import CheckoutNotFound


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("REPRISE_ROOT", raising=False)
    (tmp_path / "checkout/data/claims").mkdir(parents=True)
    return tmp_path / "checkout"


def test_the_variable_wins(checkout, monkeypatch):
    monkeypatch.setenv("REPRISE_ROOT", str(checkout))
    assert paths.root() == checkout
    monkeypatch.setenv("REPRISE_ROOT", str(checkout / "data"))
    with pytest.raises(CheckoutNotFound, match="REPRISE_ROOT=.*data: expected a folder holding data/claims"):
        paths.root()


def test_the_current_folder_and_those_above_it_are_searched(checkout, monkeypatch):
    deep = checkout / "notebooks/refit"
    deep.mkdir(parents=True)
    for folder in (checkout, deep):
        monkeypatch.chdir(folder)
        assert paths.root() == checkout


def test_then_those_above_the_module(checkout, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "__file__", str(checkout / "lib/reprise/nb/paths.py"))
    assert paths.root() == checkout


def test_both_places_are_named(monkeypatch, tmp_path):
    monkeypatch.delenv("REPRISE_ROOT", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site-packages/reprise/nb/paths.py"))
    with pytest.raises(CheckoutNotFound) as caught:
        paths.root()
    assert str(tmp_path / "here") in str(caught.value)
    assert str(tmp_path / "site-packages/reprise/nb") in str(caught.value)


def test_notebooks_are_listed_by_stem(checkout):
    names = ["99_scoreboard", "refit/02_payload", "00_overview", "refit/Untitled", ".ipynb_checkpoints/00_overview"]
    for name in names:
        path = checkout / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = paths.notebooks(checkout)
    assert list(found) == ["00_overview", "99_scoreboard", "refit/02_payload"]
    assert found["refit/02_payload"] == checkout / "notebooks/refit/02_payload.ipynb"


def test_the_latest_run_is_followed(checkout):
    assert paths.latest_run(checkout) is None
    (checkout / "runs/a").mkdir(parents=True)
    (checkout / "runs/latest").symlink_to("a")
    assert paths.latest_run(checkout) == checkout / "runs/a"
    (checkout / "runs/a").rmdir()
    assert paths.latest_run(checkout) is None
