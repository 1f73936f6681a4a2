"""Rules on the code of a notebook: what would print something else on another machine, or the next time.

Each was seen to fail a strict comparison of saved against computed outputs, or to slip through it. Code is read, never
run. A value whose print differs (a clock, a version, a path, the order of a set, a hash) is followed from where it is
made through assignments to where it is printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAGIC = re.compile(r"^\s*[%!]", re.MULTILINE)
MAX_LINES = 25  # of code in one cell, blank lines and comments not counted

BANNED_IMPORTS = {
    "tqdm": "no progress bars in a notebook, the runner shows progress",
    "ipywidgets": "expected reprise.nb.explore, whose output is the same without a front end",
    "logging": "log lines carry process ids and times; print what matters",
}
BANNED_NAMES = {
    "clear_output": "replaced outputs are not compared as a reader sees them",
    "update_display": "updated outputs are not compared as a reader sees them",
    "display_id": "updated outputs are not compared as a reader sees them",
    "interact": "expected reprise.nb.explore, whose output is the same without a front end",
    "interactive": "expected reprise.nb.explore, whose output is the same without a front end",
}
STYLE_MODULES = ("plt", "mpl", "matplotlib", "nb")  # whose `.style` is not a pandas Styler

# how a value that differs between runs is made: a builtin called by its name, a name however imported, or a name of
# one owner. Absolute paths are looked for in the outputs instead: most code that touches a path prints none
MADE_BY = {
    "set()": "a set",
    "frozenset()": "a set",
    "hash()": "a hash",
    "id()": "a hash",
    "perf_counter": "a timing",
    "perf_counter_ns": "a timing",
    "monotonic": "a timing",
    "process_time": "a timing",
    "default_timer": "a timing",
    "time.time": "a timing",
    "time.time_ns": "a timing",
    "timeit.timeit": "a timing",
    "datetime.now": "a timing",
    "date.today": "a timing",
    "__version__": "a version",
    "python_version": "a version",
    "metadata.version": "a version",
    "sys.version": "a version",
    "sys.version_info": "a version",
    "platform.platform": "a version",
    "platform.processor": "a version",
    "gethostname": "a host or process",
    "getpid": "a host or process",
    "platform.node": "a host or process",
}
INSTEAD = {
    "a set": "expected sorted(...)",
    "a hash": "expected hashlib, whose digests do not change",
    "a timing": "expected rec.value, which keeps it off the page",
    "a version": "expected rec.value, which keeps it off the page",
    "a host or process": "expected rec.value, which keeps it off the page",
}
# calls that hand the order of a set on; most others (sorted, len, sum) do not
KEEP_ORDER = set(
    "list tuple iter next enumerate map filter zip str repr join format copy pop "
    "union intersection difference symmetric_difference".split()
)


def source_problems(sources: Sequence[str], volatile: Sequence[bool]) -> Iterator[tuple[int, str]]:
    """(cell number, problem) of code cells in order.

    Args:
        sources: the cells' code.
        volatile: cells tagged `nbval-ignore-output`, which may print what differs.
    """
    tracker = _Tracker()
    for number, (source, may_differ) in enumerate(zip(sources, volatile, strict=True)):
        if MAGIC.search(source):
            yield number, "magic or shell line: expected plain Python"
            continue
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            yield number, f"line {error.lineno} does not parse: {error.msg}"
            continue
        problems = [*_form(source, tree), *_banned(tree), *_figures(tree)]
        printed = tracker.read(tree)
        yield from ((number, problem) for problem in [*problems, *([] if may_differ else printed)])


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of a function or method by its last name."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) == name)


def last_name(node: ast.AST) -> str:
    """`a.b.c` -> "c", `c` -> "c", anything else -> ""."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _form(source: str, tree: ast.Module) -> Iterator[str]:
    used = [line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(used) > MAX_LINES:
        yield f"{len(used)} lines of code: expected at most {MAX_LINES}"
    if tree.body:
        last = tree.body[-1]
        rest = source.encode().splitlines()[last.end_lineno - 1][last.end_col_offset :]
        if rest.lstrip().startswith(b";"):
            yield "ends in `;`, which hides nothing when history is off: expected an assignment to _"


def _banned(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in {module.split(".")[0] for module in modules} & BANNED_IMPORTS.keys():
                yield f"imports {name}: {BANNED_IMPORTS[name]}"
        elif isinstance(node, ast.Call):
            used = {last_name(node.func), *(keyword.arg for keyword in node.keywords)}
            for name in sorted(used & BANNED_NAMES.keys()):
                yield f"{name}: {BANNED_NAMES[name]}"
            if last_name(node.func) == "warn":
                yield "warn: a warning's text carries the kernel's process id"
        elif isinstance(node, ast.Attribute) and node.attr == "style" and last_name(node.value) not in STYLE_MODULES:
            yield ".style: a pandas Styler prints its address: expected formatted texts in a DataFrame"
    handles = {t.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_display(node.value)
               for t in node.targets if isinstance(t, ast.Name)}  # fmt: skip
    for call in calls(tree, "update"):
        if isinstance(call.func, ast.Attribute) and last_name(call.func.value) in handles:
            yield "update of a display: updated outputs are not compared as a reader sees them"


def _is_display(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "display"


def _figures(tree: ast.Module) -> Iterator[str]:
    draws = any(True for name in ("subplots", "subplot_mosaic") for _ in calls(tree, name))
    shows = any(True for _ in calls(tree, "show"))
    if draws and not shows:
        yield "draws a figure: expected plt.show() after it"
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and isinstance(last.value.func, ast.Attribute):
        base = last.value.func.value
        base = base.value if isinstance(base, ast.Subscript) else base
        if last_name(base) in ("plt", "ax", "axes", "fig") and last.value.func.attr != "show":
            yield "ends with a drawing call, whose value is printed with its address: expected plt.show()"


@dataclass
class _Tracker:
    """Which names hold a value that differs between runs, cell after cell."""

    names: dict[str, set[str]] = field(default_factory=dict)

    def read(self, tree: ast.Module) -> list[str]:
        """Follow a cell's assignments; return what it prints that differs."""
        found: list[str] = []
        for statement in tree.body:
            for node in _in_order(statement):
                self._assign(node)
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in ("print", "display")
                ):
                    found += self._printed(node.args)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr) and not _returns_nothing(last.value):
            found += self._printed([last.value])
        return list(dict.fromkeys(found))

    def _printed(self, nodes: list[ast.expr]) -> Iterator[str]:
        kinds = set().union(*(self.kinds(node) for node in nodes)) if nodes else set()
        return (f"prints {kind}: {INSTEAD[kind]}" for kind in sorted(kinds))

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, self.kinds(node.value), replace=True)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._bind(node.target, self.kinds(node.value), replace=True)
        elif isinstance(node, ast.AugAssign):
            self._bind(node.target, self.kinds(node.value), replace=False)
        elif isinstance(node, ast.For):
            self._bind(node.target, self.kinds(node.iter), replace=True)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("append", "extend", "insert", "setdefault"):
            kinds = set().union(*(self.kinds(argument) for argument in node.args), set())
            if isinstance(node.func, ast.Attribute):
                self._bind(node.func.value, kinds, replace=False)

    def _bind(self, target: ast.AST, kinds: set[str], replace: bool) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = kinds if replace else self.names.get(target.id, set()) | kinds
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._bind(item, kinds, replace)
        elif isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
            self._bind(target.value, kinds, replace=False)

    def kinds(self, node: ast.AST) -> set[str]:
        """What may differ in the value of an expression."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, set())
        if isinstance(node, ast.Compare | ast.Lambda):
            return set()  # a truth value; a threshold on a clock is the author's to defend
        below = set().union(*(self.kinds(child) for child in ast.iter_child_nodes(node)))
        if isinstance(node, ast.Set | ast.SetComp):
            return below | {"a set"}
        if isinstance(node, ast.Attribute):
            return below | _made((node.attr, f"{last_name(node.value)}.{node.attr}"))
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            below -= set() if name in KEEP_ORDER else {"a set"}
            return below | (_made((name, f"{name}()")) if isinstance(node.func, ast.Name) else set())
        return below


def _made(names: tuple[str, ...]) -> set[str]:
    return {MADE_BY[name] for name in names if name in MADE_BY}


def _in_order(statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes in the order of the text, statements before what they contain."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        yield from _in_order(child)


def _returns_nothing(node: ast.expr) -> bool:
    """print, plt.show and the recorder's methods, except `table`, print nothing by their value."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in ("print", "display", "explore")
    owner = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    return owner in ("rec", "plt") and last_name(node.func) != "table"
