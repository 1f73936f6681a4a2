"""Arrows point down only: notebooks -> nb, labs -> systems -> the floor; and what each layer may cost to import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import reprise

PACKAGE = Path(reprise.__file__).parent
# modules that everything above may import; a new one is added here
FLOOR = {
    "chat",
    "chat_choose",
    "chat_client",
    "chat_replay",
    "chat_endpoint",
    "durable",
    "errors",
    "local_models",
    "policy_gradient",
    "printed",
    "rewards",
    "sandbox",
    "stats",
    "stats_exact",
    "traces",
}
ENTRY = {"cli"}
SYSTEMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - FLOOR - {"nb", "labs"}

DRAWING = {"matplotlib", "pandas", "seaborn"}
HEAVY = {
    "floor": DRAWING,
    "systems": DRAWING,
    # a batch whose notebooks are all cached must end at once
    "nb": DRAWING | {"torch", "transformers", "papermill", "nbclient", "scipy"},
    "entry": DRAWING | {"torch", "transformers", "numpy"},
    "labs": set(),
}
# modules whose subject is tensors, and which nothing torch-free imports
# a copy plan records what a loader does to torch storage; `import reprise.refit` loads none of these
TORCH_AT_IMPORT: set[str] = {
    f"reprise.refit.placement.{name}"
    for name in ("copy_plan", "copy_recorder", "index_probe", "plan_check", "through_loader")
}

# systems all of whose subject is tensors: importing them imports torch
TENSOR_SYSTEMS = {"fp4"}

LINES = 300
# file below lib/reprise -> why it is longer than LINES
LONGER: dict[str, str] = {}


class Import(NamedTuple):
    name: str
    line: int
    at_import: bool


def layer(module: str) -> str:
    """Layer of a module given as `reprise.<top>...`."""
    top = module.split(".")[1] if "." in module else ""
    if top in ENTRY:
        return "entry"
    if top in ("nb", "labs"):
        return top
    return "systems" if top in SYSTEMS else "floor"


def forbidden(module: str, imported: str) -> str | None:
    """Why `module` may not import `imported` (both below `reprise`), or None if it may."""
    here, there = layer(module), layer(imported)
    allowed = {"floor": {"floor"}, "systems": {"floor", "systems"}, "labs": {"floor", "systems", "labs"}}
    allowed |= {"nb": {"floor", "nb"}, "entry": {"floor"}}
    if there not in allowed[here]:
        return f"{here} may import {', '.join(sorted(allowed[here]))}"
    if here == there == "systems" and module.split(".")[1] != imported.split(".")[1]:
        return "a system imports no other system"
    return None


def imports(source: str, module: str, is_package: bool = False) -> Iterator[Import]:
    """Every import of a module, relative ones resolved, with whether it happens when the module is imported."""
    parts = module.split(".") if is_package else module.split(".")[:-1]

    def walk(node: ast.AST, at_import: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, at_import) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(parts[: len(parts) - child.level + 1]) if child.level else ""
                base = ".".join(filter(None, [base, child.module]))
                yield from (Import(f"{base}.{alias.name}", child.lineno, at_import) for alias in child.names)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            else:
                lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, at_import and not lazy)

    yield from walk(ast.parse(source), True)


def modules() -> list[tuple[str, Path]]:
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return names


def all_imports() -> Iterator[tuple[str, Path, Import]]:
    for module, path in modules():
        yield from ((module, path, each) for each in imports(path.read_text(), module, path.name == "__init__.py"))


# -- the rules themselves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module, imported, allowed",
    [
        ("reprise.refit.frame", "reprise.durable.atomic_write", True),
        ("reprise.refit.frame", "reprise.refit.bits", True),
        ("reprise.labs.tiny_moe", "reprise.refit.bits", True),
        ("reprise.nb.records", "reprise.durable", True),
        ("reprise.refit.frame", "reprise.nb.det", False),
        ("reprise.refit.frame", "reprise.labs.tiny_moe", False),
        ("reprise.labs.tiny_moe", "reprise.nb.det", False),
        ("reprise.nb.records", "reprise.refit.bits", False),
        ("reprise.nb.records", "reprise.labs", False),
        ("reprise.durable.journal", "reprise.nb", False),
        ("reprise.cli", "reprise.nb.cli", False),
    ],
)
def test_the_arrows(module, imported, allowed):
    assert (forbidden(module, imported) is None) == allowed


def test_a_system_may_not_import_another(monkeypatch):
    monkeypatch.setitem(globals(), "SYSTEMS", {"refit", "fp4"})
    assert forbidden("reprise.refit.frame", "reprise.fp4.formats") == "a system imports no other system"


def test_imports_are_found_wherever_they_stand():
    source = (
        "import a.b\nfrom . import c\nfrom ..durable import x\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import unseen\n"
        "try:\n    import d\nexcept ImportError:\n    pass\n"
        "class K:\n    import e\n    def f(self):\n        import g\n"
    )
    found = {each.name: each.at_import for each in imports(source, "reprise.refit.frame")}
    assert found == {
        **dict.fromkeys(["a.b", "reprise.refit.c", "reprise.durable.x", "typing.TYPE_CHECKING", "d", "e"], True),
        "g": False,
    }


# -- the package -------------------------------------------------------------------------------------------------------


def test_every_top_level_module_has_a_layer():
    tops = {path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    assert tops <= FLOOR | ENTRY, "a new module of the floor is added to FLOOR; anything else lies in a package"


def test_arrows_point_down_only():
    broken = [
        f"{path.relative_to(PACKAGE)}:{each.line}: imports {each.name}: {reason}"
        for module, path, each in all_imports()
        if each.name.startswith("reprise.") and (reason := forbidden(module, each.name))
    ]
    assert not broken, "\n".join(broken)


def test_nothing_heavy_is_imported_with_a_module():
    broken = [
        f"{path.relative_to(PACKAGE)}:{each.line}: imports {each.name} at module level"
        for module, path, each in all_imports()
        if each.at_import and each.name.split(".")[0] in HEAVY[layer(module)]
    ]
    assert not broken, "\n".join(broken)


def test_torch_is_imported_with_the_modules_listed_only():
    found = {
        module
        for module, _, each in all_imports()
        if each.at_import and each.name.split(".")[0] == "torch" and layer(module) in ("floor", "systems")
        if not set(module.split(".")) & TENSOR_SYSTEMS
    }
    assert found == TORCH_AT_IMPORT


LIGHT = [f"reprise.{system}" for system in sorted(SYSTEMS - TENSOR_SYSTEMS)]
LIGHT += ["reprise.durable", "reprise.chat", "reprise.nb.claims", "reprise.nb.cli", "reprise.cli"]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_neither_torch_nor_pandas_nor_a_drawing_library(module):
    if not any(name == module for name, _ in modules()):
        pytest.skip(f"{module} is not there")
    heavy = sorted(DRAWING | {"torch", "transformers", "papermill"})
    program = f"import sys, {module}\nprint(*[name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
UNSAFE_LOADERS = {f"{prefix}{name}" for prefix in ("", "yaml.") for name in ("Loader", "UnsafeLoader", "FullLoader")}


def unsafe_loads(source: str) -> Iterator[tuple[int, str]]:
    """Calls that would run code found in a file: unpickling in any of its forms."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        last = name.rsplit(".", 1)[-1]
        if name == "torch.load" and keywords.get("weights_only") != "True":
            yield node.lineno, "torch.load without weights_only=True"
        elif keywords.get("allow_pickle", "False") != "False":
            yield node.lineno, f"{name} with allow_pickle"
        elif last in ("load", "loads", "Unpickler", "open") and name.split(".")[0] in UNSAFE:
            yield node.lineno, name
        elif last in ("read_pickle", "unsafe_load"):
            yield node.lineno, name
        elif name == "yaml.load" and keywords.get("Loader", "Loader") in UNSAFE_LOADERS:
            yield node.lineno, "yaml.load with a loader that builds objects"


def test_unsafe_loads_are_recognised():
    bad = ["torch.load(f)", "torch.load(f, weights_only=False)", "pickle.load(f)", "pickle.Unpickler(f)"]
    bad += ["np.load(f, allow_pickle=True)", "pd.read_pickle(f)", "yaml.load(f)", "marshal.loads(b)"]
    good = ["torch.load(f, weights_only=True)", "np.load(f)", "json.load(f)", "yaml.load(f, Loader=UniqueKeys)"]
    assert [len(list(unsafe_loads(source))) for source in bad + good] == [1] * len(bad) + [0] * len(good)


def test_nothing_from_a_file_is_unpickled():
    broken = [
        f"{path.relative_to(PACKAGE)}:{line}: {what}"
        for _, path in modules()
        for line, what in unsafe_loads(path.read_text())
    ]
    assert not broken, "\n".join(broken)
    imported = {
        f"{module} imports {each.name}" for module, _, each in all_imports() if each.name.split(".")[0] in UNSAFE
    }
    assert not imported


def test_a_file_is_one_idea():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for _, path in modules()}
    long = {name for name, length in lengths.items() if length > LINES}
    assert long == set(LONGER), f"more than {LINES} lines without a reason in LONGER, or the reverse"
