"""A tiny checkout that the notebook side takes for its own."""

import pytest
from tiny import Collection


@pytest.fixture
def collection(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRISE_ROOT", str(tmp_path / "checkout"))
    for name in ("REPRISE_PRESET", "REPRISE_THREADS", "REPRISE_WIDGETS"):
        monkeypatch.delenv(name, raising=False)
    return Collection(tmp_path / "checkout")
