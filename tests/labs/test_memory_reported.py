from decimal import Decimal

import pytest

from reprise.errors import RepriseError
from reprise.labs.memory_reported import Reported, rounded
from reprise.nb import paths

TABLE = Reported(paths.root() / "data" / "reported" / "memory" / "results.csv")


def test_a_figure_keeps_its_printed_digits():
    assert str(TABLE.get("Qwen3-8B", "KaggleDBQA", "MNL", "EA")) == "28.0"
    assert TABLE.get("DeepSeek-V3.2-Exp", "KaggleDBQA", "MNL", "EA", "preprint") == Decimal("31.4")


def test_what_is_not_reported_is_refused():
    with pytest.raises(RepriseError, match="Qwen3-8B, Spider, ACE, EA, published: 0 figures"):
        TABLE.get("Qwen3-8B", "Spider", "ACE", "EA")


def test_halves_go_away_from_zero():
    assert (rounded(Decimal("2.25")), rounded(Decimal("-2.25")), rounded(46.5, 0)) == (2.3, -2.3, 47.0)
