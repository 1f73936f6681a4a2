"""Committed notebooks: outputs that compare equal, written only when every cell ran."""

import json

import nbformat
import pytest

from reprise.nb.refresh import normalised, refresh
from reprise.nb.rules import check_notebook

SHOWN = """
import sys
print("first")
sys.stdout.flush()
print("second")
{"b": 1}
"""


def test_a_notebook_is_written_when_all_cells_ran_and_left_alone_when_one_fails(collection):
    good = collection.add("demo/01_good", SHOWN, "OUT")
    bad = collection.add("demo/02_bad", "print(1)", "1/0")
    before = bad.read_bytes()
    results = {stem: (status, detail) for stem, status, detail in refresh(["demo/01_good", "demo/02_bad"], workers=2)}
    assert results == {
        "demo/01_good": ("changed", ""),
        "demo/02_bad": ("failed", "failed: code cell 3: ZeroDivisionError: division by zero"),
    }
    assert bad.read_bytes() == before
    document = json.loads(good.read_bytes())
    nbformat.validate(document, relax_add_props=False)
    cells = document["cells"]
    assert [cell["id"] for cell in cells] == ["tn00", "tn01", "tn02", "tn03"]
    assert [cell.get("execution_count") for cell in cells] == [None, 1, 2, 3]
    assert cells[1]["metadata"] == {"tags": ["parameters"]} and cells[2]["metadata"] == {}
    stream, result = cells[2]["outputs"]
    assert stream == {"name": "stdout", "output_type": "stream", "text": ["first\n", "second\n"]}
    assert (result["data"], result["execution_count"], result["metadata"]) == ({"text/plain": ["{'b': 1}"]}, 2, {})
    assert cells[3]["outputs"][0]["data"]["text/plain"] == ["''"], "no run directory"
    # what a refresh writes breaks no rule but those this tiny notebook cannot keep
    broken = [text for text in check_notebook("demo/01_good", good) if "setup cell" not in text and "close" not in text]
    assert broken == []
    assert not list((collection.root / "runs").iterdir())


def test_normalising_drops_what_differs_between_runs():
    document = {
        "cells": [
            {"cell_type": "markdown", "id": "ab01", "metadata": {"papermill": {"duration": 1}}, "source": "# T"},
            {
                "cell_type": "code",
                "id": "ab02",
                "metadata": {"tags": ["parameters"], "execution": {"iopub.status.busy": "12:00"}},
                "execution_count": 9,
                "source": "x",
                "outputs": [
                    {"output_type": "stream", "name": "stdout", "text": "a"},
                    {"output_type": "stream", "name": "stdout", "text": ["b\n", "c"]},
                    {"output_type": "stream", "name": "stderr", "text": "d"},
                    {"output_type": "stream", "name": "stdout", "text": "e"},
                    {"output_type": "display_data", "data": {"image/png": "eA=="}, "metadata": {"image/png": {"w": 1}}},
                    {"output_type": "execute_result", "data": {}, "metadata": {}, "execution_count": 9},
                ],
            },
        ],
        "metadata": {"widgets": {}, "papermill": {}, "language_info": {"name": "python", "version": "3.11.7"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    before = json.dumps(document)
    result = normalised(document)
    assert json.dumps(document) == before, "the argument stays as it was"
    assert result["metadata"].keys() == {"kernelspec", "language_info"}
    assert result["metadata"]["language_info"] == {"name": "python"}
    markdown, code = result["cells"]
    assert markdown["metadata"] == {} and code["metadata"] == {"tags": ["parameters"]}
    assert code["execution_count"] == 1
    assert code["outputs"] == [
        {"output_type": "stream", "name": "stdout", "text": "ab\nc"},
        {"output_type": "stream", "name": "stderr", "text": "d"},
        {"output_type": "stream", "name": "stdout", "text": "e"},
        {"output_type": "display_data", "data": {"image/png": "eA=="}, "metadata": {}},
        {"output_type": "execute_result", "data": {}, "metadata": {}, "execution_count": 1},
    ]
    assert normalised(result) == result


@pytest.mark.slow
def test_a_notebook_that_ends_its_kernel_is_left_alone(collection):
    path = collection.add("demo/01_ends", "import os; os._exit(4)")
    before = path.read_bytes()
    ((stem, status, detail),) = refresh(["demo/01_ends"])
    assert (stem, status) == ("demo/01_ends", "failed") and "kernel ended with exit code 4" in detail
    assert path.read_bytes() == before
