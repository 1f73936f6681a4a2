"""The table in the README is the committed one."""

import pytest

from reprise.errors import RepriseError
from reprise.nb import paths, scoreboard
from reprise.nb.readme import BEGIN, END, block, update

ROWS = [
    {"system": "fp4", "kind": "exact", "status": "reproduced"},
    {"system": "fp4", "kind": "exact", "status": "reproduced"},
    {"system": "fp4", "kind": "reduced", "status": "not reproduced"},
]
TABLE = """| system | kind | reproduced | not reproduced |
|---|---|--:|--:|
| fp4 | exact | 2 |  |
| fp4 | reduced |  | 1 |"""


def test_block_counts_claims_by_system_kind_and_status():
    assert block(ROWS) == f"{BEGIN}\n{TABLE}\n{END}"


def test_update_replaces_the_block_alone(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert update(page, ROWS)
    assert page.read_text() == f"before\n{BEGIN}\n{TABLE}\n{END}\nafter\n"
    assert not update(page, ROWS)


def test_update_leaves_a_page_without_markers_alone(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("nothing here\n")
    assert not update(page, ROWS)


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_update_refuses_broken_markers(tmp_path, text):
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(RepriseError, match="README.md: markers"):
        update(page, ROWS)


def test_the_readme_shows_the_committed_results():
    assert block(scoreboard.rows(preset="full")) in (paths.root() / "README.md").read_text()
