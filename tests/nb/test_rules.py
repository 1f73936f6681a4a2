"""The zoo: what a strict comparison of notebook outputs trips over, or lets through, and what it does not mind."""

import json
import subprocess
import sys

import pytest
from entries import entry, write_registry

from reprise.nb import paths, rules
from reprise.nb.rules_source import source_problems

STEM = "fp4/03_guidance_cost"
SETUP = f"""
from reprise.nb import det
from reprise.nb.records import Recorder
rng = det.setup(SEED)
rec = Recorder("{STEM}", OUT, seed=SEED)
"""
PNG = "iVBORw0KGgo="
PICTURE = {
    "output_type": "display_data",
    "metadata": {},
    "data": {"image/png": PNG, "text/plain": "<Figure size 640x480>"},
}


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def result(count=3, **data):
    data = {kind.replace("_", "/"): text for kind, text in data.items()}
    return {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data}


def shown(kind, text):
    return {"output_type": "display_data", "metadata": {}, "data": {kind: text, "text/plain": "shown"}}


# name, source, outputs as they are saved, and what is reported (None: nothing)
ZOO = [
    ("print of a float", "print(0.1234)", [stream("0.1234\n")], None),
    (
        "a bare DataFrame",
        "df",
        [result(text_html='<table border="1" class="dataframe">', text_plain="   x\n0  1")],
        None,
    ),
    ("a figure that is shown", "fig, ax = plt.subplots()\nax.plot(x)\nplt.show()", [PICTURE], None),
    ("a figure, then a claim", "fig, ax = plt.subplots()\nplt.show()\nprint(3)", [PICTURE, stream("3\n")], None),
    ("a drawing call at the end", "plt.plot(x)", [result(text_plain="[<Line2D at 0x7f3c1a2b4c10>]")], "drawing call"),
    ("its address", "thing", [result(text_plain="<Thing object at 0x7f3c1a2b4c10>")], "a memory address in its output"),
    ("a figure without show", "fig, ax = plt.subplots()\nax.plot(x)\n_ = 1", [PICTURE], "expected plt.show()"),
    ("a picture without show", "_ = draw()", [PICTURE], "shows a picture: expected plt.show()"),
    ("SVG", "plt.show()", [shown("image/svg+xml", "<svg/>")], "output image/svg+xml: expected only"),
    ("JPEG", "plt.show()", [shown("image/jpeg", PNG)], "output image/jpeg: expected only"),
    ("a value hidden by ;", "x = 1\nx;", [], "ends in `;`"),
    ("; before a comment", "x = 1;  # hidden", [], "ends in `;`"),
    ("a ; inside a text", 'print("a;")', [stream("a;\n")], None),
    ("a progress bar", "from tqdm import tqdm", [], "imports tqdm: no progress bars"),
    ("its text", "run()", [stream("100%|####| 3/3 [00:00<00:00, 9it/s]", "stderr")], "output on stderr"),
    ("a warning", "import warnings\nwarnings.warn('x')", [], "warn: a warning's text"),
    ("a saved warning", "x = 1", [stream("/tmp/ipykernel_71/1.py:1: UserWarning: x\n", "stderr")], "output on stderr"),
    ("a log line", "import logging\nlogging.warning('x')", [stream("WARNING:root:x\n", "stderr")], "imports logging"),
    ("a timing", "t = time.perf_counter()\nrun()\nprint(f'{time.perf_counter() - t:.1f}')", [], "prints a timing"),
    ("a timing, imported", "from time import perf_counter\nt = perf_counter()\nt", [], "prints a timing"),
    ("timings collected", "times = []\ntimes.append(time.time())\nprint(*times)", [], "prints a timing"),
    ("a table of timings", "d = {}\nd['s'] = time.time()\ndf = pd.DataFrame(d)\ndf", [], "prints a timing"),
    ("a recorded timing", "t = time.time()\nrun()\nrec.value('seconds', time.time() - t)", [], None),
    ("a measured claim", "t = time.time()\nrec.claim('fp4.cache.per_token', time.time() / t)", [], None),
    ("timing magic", "%timeit run()", [stream("1 us per loop\n")], "magic or shell line"),
    ("a shell line", "!ls", [], "magic or shell line"),
    ("a timing in the text", "run()", [stream("Wall time: 3 s\n")], "a timing in its output"),
    ("a reported time", "print('750 s')", [stream("reported 750 s\n")], None),
    ("a version", "print(np.__version__)", [stream("2.4.6\n")], "prints a version"),
    ("the interpreter", "import sys\nsys.version", [result(text_plain="'3.11'")], "prints a version"),
    ("another's version", "print(request.version)", [stream("3\n")], None),
    ("a path", "print(p)", [stream("/home/ada/reprise/data\n")], "an absolute path in its output"),
    ("a path of Windows", "print(p)", [stream("C:\\Users\\ada\n")], "an absolute path in its output"),
    ("a file address", "print(p)", [stream("file:///x\n")], "an absolute path in its output"),
    ("a relative path", "print(p)", [stream("data/claims and tmp/x and https://a.org/tmp/x\n")], None),
    ("a ratio", "print(p)", [stream("3/4 of /s\n")], None),
    ("a host", "import socket\nprint(socket.gethostname())", [], "prints a host or process"),
    ("a set", "print({'a', 'b'})", [stream("{'b', 'a'}\n")], "prints a set: expected sorted(...)"),
    ("a set in a list", "names = set(words)\nlist(names)", [], "prints a set"),
    ("a set in a loop", "for name in {'a', 'b'}:\n    print(name)", [], "prints a set"),
    ("a set joined", "print(', '.join(set(words) | {'x'}))", [], "prints a set"),
    (
        "a sorted set",
        "names = set(words)\nprint(sorted(names), len(names), 'a' in names)",
        [stream("['a'] 1 True\n")],
        None,
    ),
    ("a set given to a function", "print(score(set(words)))", [stream("3\n")], None),
    ("a name used again", "x = {1}\nx = 3\nprint(x)", [stream("3\n")], None),
    ("a hash", "print(hash('a'))", [], "prints a hash"),
    ("a column called hash", "print(df.hash, row.id)", [stream("1 2\n")], None),
    ("interact", "interact(draw, k=3)", [], "interact: expected reprise.nb.explore"),
    ("widgets", "import ipywidgets as w", [], "imports ipywidgets: expected reprise.nb.explore"),
    ("a slider", "s", [shown("application/vnd.jupyter.widget-view+json", {})], "output application/vnd.jupyter"),
    ("explore", "explore(draw, k=(3, 1, 9))", [PICTURE], None),
    ("clear_output", "clear_output()", [], "clear_output: replaced outputs"),
    ("a display id", "display(1, display_id='x')", [], "display_id: updated outputs"),
    ("an updated display", "h = display(1)\nh.update(2)", [], "update of a display"),
    ("an updated dict", "d = {}\nd.update(a=1)", [], None),
    ("a Styler", "df.style.format('{:.2f}')", [], ".style: a pandas Styler"),
    (
        "its text",
        "show(df)",
        [result(text_html='<style>#T_a1b2c {}</style><table id="T_a1b2c">')],
        "a pandas Styler in its",
    ),
    ("plot style", "plt.style.use('x')\n_ = 1", [], None),
    (
        "an error",
        "1 / 0",
        [{"output_type": "error", "ename": "ZeroDivisionError", "evalue": "", "traceback": []}],
        "saved error",
    ),
    ("a long cell", "\n".join(f"x{n} = {n}" for n in range(26)), [], "26 lines of code: expected at most 25"),
    ("comments do not count", "\n".join(f"x{n} = {n}\n# {n}\n" for n in range(25)), [], None),
    ("no Python", "x = = 1", [], "line 1 does not parse"),
    ("no code", " ", [], "empty code cell"),
]


def code(id, source, count, outputs=(), tags=()):
    metadata = {"tags": list(tags)} if tags else {}
    outputs = [{**output, "execution_count": count} if "execution_count" in output else output for output in outputs]
    return {"cell_type": "code", "id": id, "metadata": metadata, "execution_count": count, "outputs": outputs,
            "source": source.strip() or source}  # fmt: skip


def notebook(*cells) -> dict:
    """A right notebook around these cells (source, outputs, tags)."""
    inner = [code(f"gc{n:02d}", source, n, outputs, tags) for n, (source, outputs, tags) in enumerate(cells, 3)]
    return {
        "cells": [
            {"cell_type": "markdown", "id": "gc00", "metadata": {}, "source": "# What guidance costs\n\nA question."},
            code("gc01", 'SEED: int = 0\nOUT: str = ""', 1, tags=["parameters"]),
            code("gc02", SETUP, 2),
            *inner,
            code("gc99", "rec.close()", 3 + len(inner)),
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@pytest.fixture
def check(collection):
    """Write a notebook document, return its problems."""
    path = collection.add(STEM)

    def problems(document, **more):
        path.write_text(json.dumps(document))
        return rules.check_notebook(STEM, path, **more)

    return problems


@pytest.mark.parametrize("name, source, outputs, problem", ZOO, ids=[item[0] for item in ZOO])
def test_zoo(check, name, source, outputs, problem):
    problems = check(notebook((source, outputs, ())))
    if problem is None:
        assert problems == []
    else:
        assert problems and all(text.startswith(f"{STEM}: cell 4 (gc03): ") for text in problems)
        assert any(problem in text for text in problems)


def test_every_cell_of_one_large_notebook_is_reported_by_itself(check):
    problems = check(notebook(*((source, outputs, ()) for _, source, outputs, _ in ZOO)))
    reported = {int(text.split("cell ")[1].split(" ")[0]) - 4 for text in problems}
    # names live on in later cells, and so does what they hold
    assert reported >= {number for number, item in enumerate(ZOO) if item[3]}


@pytest.mark.parametrize("tags, reported", [((), True), (("nbval-ignore-output",), False)])
def test_an_uncompared_cell_may_print_what_differs(check, tags, reported):
    cell = ("t = time.time()\nprint(time.time() - t)\nprint({1, 2})", [stream("Wall time: 3 s\n")], tags)
    assert bool(check(notebook(cell))) is reported


def test_but_not_what_tells_where_it_ran(check):
    cell = ("print(p)", [stream("/home/ada\n")], ("nbval-ignore-output",))
    assert len(check(notebook(cell))) == 1


def test_the_checkouts_own_host_is_found(check, monkeypatch):
    monkeypatch.setattr(rules.socket, "gethostname", lambda: "node-17")
    assert "the host's name in its output" in check(notebook(("x", [stream("on node-17\n")], ())))[0]
    monkeypatch.setattr(rules.socket, "gethostname", lambda: "laptop")  # a word that any text may hold
    assert check(notebook(("x", [stream("on laptop\n")], ()))) == []


def edited(change) -> dict:
    document = notebook(("print(1)", [stream("1\n")], ()), ("print(2)", [stream("2\n")], ()))
    change(document, document["cells"])
    return document


STRUCTURE = [
    (lambda doc, c: c[3].update(execution_count=None), "cell 4 (gc03): execution count None: expected 3"),
    (lambda doc, c: c[4].update(execution_count=7), "cell 5 (gc04): execution count 7: expected 4"),
    (lambda doc, c: c[3].update(id="gc04"), "cell 5 (gc04): id 'gc04': expected two letters and two digits, once"),
    (lambda doc, c: c[3].update(id="a1b2c3d4"), "cell 4 (a1b2c3d4): id 'a1b2c3d4': expected two letters"),
    (lambda doc, c: c[3]["metadata"].update(scrolled=True), "cell 4 (gc03): metadata scrolled: expected only tags"),
    (lambda doc, c: c[3]["metadata"].update(tags=["injected-parameters"]), "(gc03): parameters injected by a run"),
    (lambda doc, c: doc["metadata"].update(papermill={}), "notebook metadata papermill: expected only kernelspec"),
    (lambda doc, c: doc["metadata"]["language_info"].update(version="3.11"), "notebook metadata: expected kernelspec"),
    (lambda doc, c: doc["metadata"]["kernelspec"].update(name="mine"), "notebook metadata: expected kernelspec"),
    (lambda doc, c: c[0].update(source="What guidance costs"), "first cell: expected Markdown that starts"),
    (lambda doc, c: c[1].update(metadata={}), "second cell: expected the parameters cell"),
    (lambda doc, c: c[1].update(source="SEED = 0"), "parameters cell:"),
    (lambda doc, c: c[3]["metadata"].update(tags=["parameters"]), "2 cells tagged `parameters`: expected exactly one"),
    (lambda doc, c: c[2].update(source=SETUP.replace("det.setup(SEED)", "det.setup(0)")), "expected det.setup(SEED)"),
    (lambda doc, c: c[2].update(source=SETUP.replace(STEM, "fp4/01_x")), f'expected rec = Recorder("{STEM}", OUT'),
    (lambda doc, c: c[2].update(source=SETUP.replace("OUT", '"runs"')), f'expected rec = Recorder("{STEM}", OUT'),
    (lambda doc, c: c[-1].update(source="rec.close()\nprint(1)"), "last code cell: expected rec.close()"),
    (lambda doc, c: c[3]["outputs"][0].update(text="x" * 400_001), " bytes: expected at most 400000"),
    (lambda doc, c: c[3].pop("outputs"), "not valid nbformat"),
    (lambda doc, c: c[3].update(outputs=[{**PICTURE, "metadata": {"needs_background": "light"}}], source="plt.show()"),
     "output metadata needs_background: expected none"),
]  # fmt: skip


@pytest.mark.parametrize("change, problem", STRUCTURE, ids=[item[1][:40] for item in STRUCTURE])
def test_form_of_the_document(check, change, problem):
    assert any(problem in text for text in check(edited(change)))


def test_a_stripped_notebook_is_reported_in_every_cell(check):
    document = notebook(("print(1)", [stream("1\n")], ()))
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell.update(execution_count=None, outputs=[])
    assert sum("execution count None" in text for text in check(document)) == 4


def test_a_file_that_is_no_notebook(check, collection):
    path = collection.root / "notebooks" / f"{STEM}.ipynb"
    check({})
    for text in ("", "[]", "{}", '{"cells": [1]}', '{"cells": [{"source": "x"}]}'):
        path.write_text(text)
        assert rules.check_notebook(STEM, path)[0].startswith(f"{STEM}: ")


def test_claims_named_in_a_notebook_are_its_own(check, collection):
    write_registry(collection.root, entry(), entry(id="fp4.other", notebook="fp4/01_x", planned=True))
    source = "rec.claim('fp4.cache.per_token', 7.5)\nrec.claim('fp4.other', 1)\nrec.skip('fp4.nothing', 'x')"
    document = notebook((source, [], ()))
    assert check(document, registry=rules.claims.load()) == [
        f"{STEM}: cell 4 (gc03): claim 'fp4.other': it belongs to fp4/01_x",
        f"{STEM}: cell 4 (gc03): claim 'fp4.nothing': the registry has no such claim",
    ]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("[address]\nregex: 0x[0-9a-f]{6,}\nreplace: ADDRESS\n", None),
        ("[address]\nregex: 0x[0-9a-f]{6,}\nreplace: \n", "[address]: expected regex and a replacement"),
        ("[number]\nregex: \\d\nreplace: N\n", f"{STEM}: cell 4 (gc03): rule [number] of sanitize.cfg applies"),
        ("".join(f"[r{n}]\nregex: zzz\nreplace: z\n" for n in range(6)), "6 rules: expected at most 5"),
        ("regex: x\n", "sanitize.cfg: File contains no section headers"),
    ],
)
def test_the_safety_net_is_never_needed(check, collection, text, problem):
    check(notebook(("print(1)", [stream("1\n")], ())))
    (collection.root / "notebooks/sanitize.cfg").write_text(text)
    problems = rules.sanitizer_problems(collection.root)
    assert problems == [] if problem is None else len(problems) == 1 and problem in problems[0]


def test_the_whole_check(check, collection):
    check(notebook(("rec.claim('fp4.cache.per_token', 7.5)", [], ())))
    write_registry(collection.root, entry())
    assert rules.check_all() == []
    write_registry(collection.root, entry(unit=7), entry(id="fp4.b", kind="fuzzy"))
    (collection.root / "notebooks/presets.yaml").write_text("fp4/09_x: {full: {}}\n")
    collection.edit(STEM, '"execution_count": 3', '"execution_count": null')
    assert [text.split(": ")[0] for text in rules.check_all()] == ["fp4.yaml", "fp4.yaml", "presets.yaml", STEM]


def test_the_collections_own_notebooks_follow_the_rules(monkeypatch):
    monkeypatch.delenv("REPRISE_ROOT", raising=False)
    assert rules.check_all(paths.root()) == []


# cells that run, to see that saved outputs of today's kernel look as the zoo says
RUNS = """
import json, sys
import nbformat
from nbclient import NotebookClient
document = nbformat.reads(sys.stdin.read(), 4)
NotebookClient(document, kernel_name="python3", allow_errors=True, timeout=60).execute()
print(nbformat.writes(document))
"""
LIVE = [
    ("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", None),
    ("plt.plot([1, 2])", "a memory address in its output"),
    ("import pandas as pd\ndf = pd.DataFrame({'x': [1]})\ndf", None),
    ("df.style.hide()", "a pandas Styler in its output"),
    ("object()", "a memory address in its output"),
    ("import warnings\nwarnings.warn('x')", "output on stderr"),
    ("__import__('tqdm').tqdm([1]).close()", "output on stderr"),
    ("import os\nos.path.abspath('/tmp/x')", "an absolute path in its output"),
    ("import ipywidgets\nipywidgets.IntSlider()", "output application/vnd.jupyter.widget-view+json"),
    ("1 / 0", "saved error ZeroDivisionError"),
    ("print(0.1 + 0.2)", None),
]


@pytest.mark.slow
def test_a_kernels_real_outputs_are_judged_like_the_zoos():
    pytest.importorskip("nbclient")
    document = notebook(*((source, [], ()) for source, _ in LIVE))
    document["cells"] = document["cells"][3:-1]
    ran = subprocess.run([sys.executable, "-c", RUNS], input=json.dumps(document), capture_output=True, text=True)
    cells = json.loads(ran.stdout)["cells"]
    for cell, (source, problem) in zip(cells, LIVE, strict=True):
        problems = list(rules._outputs({**cell, "source": source}))
        assert problems == [] if problem is None else any(problem in text for text in problems), (source, problems)


def test_source_rules_follow_names_from_cell_to_cell():
    cells = ["import time\nstart = time.time()", "elapsed = time.time() - start", "f'{elapsed:.1f} s'"]
    assert list(source_problems(cells, [False] * 3)) == [
        (2, "prints a timing: expected rec.value, which keeps it off the page")
    ]
