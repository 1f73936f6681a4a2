"""`reprise refit`: bit-exact deltas of checkpoints on disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import click
from tqdm import tqdm

from reprise.errors import RepriseError
from reprise.refit.checkpoints.checkpoint_apply import apply_checkpoint
from reprise.refit.checkpoints.checkpoint_diff import diff_checkpoints
from reprise.refit.checkpoints.checkpoint_stats import (
    BlockInfo,
    CheckpointStats,
    DeltaInfo,
    TensorChange,
    checkpoint_stats,
    delta_info,
)
from reprise.refit.checkpoints.streams import MAX_LEVEL
from reprise.refit.operations import OPERATIONS
from reprise.refit.transport.transport_cli import pull, push, serve_relay

PATH = click.Path(path_type=str)
TENSORS_SHOWN = 10


@click.group()
@click.pass_context
def cli(ctx):
    """Bit-exact deltas of safetensors files and Hugging Face folders."""
    ctx.with_resource(terminable())


for _command in (push, pull, serve_relay):
    cli.add_command(_command)


@cli.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The delta to write, usually NAME.rdl.")
@click.option("--op", type=click.Choice(OPERATIONS), default="add", show_default=True, help="How words are stored.")
@click.option("--level", type=click.IntRange(1, MAX_LEVEL), default=1, show_default=True, help="zstd level.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
def diff(old, new, output, op, level, force):
    """Write the delta that turns checkpoint OLD into NEW."""
    with one_sentence():
        done = diff_checkpoints(old, new, output, op, level, force, bar)
    share = f" ({done.delta_bytes / done.new_bytes:.2%} of NEW)" if done.new_bytes else ""
    say(f"{output}: {size(done.delta_bytes)}{share}")
    say(
        f"{done.tensors} tensors, {len(done.added)} of them added, {len(done.removed)} removed, "
        f"{done.other_files} other files"
    )


@cli.command()
@click.argument("old", type=PATH)
@click.argument("delta", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The checkpoint to write: a file or folder, as NEW was.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
def apply(old, delta, output, force):
    """Rebuild NEW from OLD and DELTA, byte for byte or not at all.

    A delta carries names and contents of files; permissions, times, links and empty folders of NEW are not carried.
    """
    with one_sentence():
        nbytes = apply_checkpoint(old, delta, output, force, bar)
    say(f"{output}: {size(nbytes)}, equal to NEW byte for byte")


@cli.command()
@click.argument("delta", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON object.")
@click.option("--top", type=click.IntRange(0), default=TENSORS_SHOWN, show_default=True, help="Tensors shown.")
def inspect(delta, as_json, top):
    """Verify DELTA and show what it holds."""
    with one_sentence():
        info = delta_info(delta, bar)
    say(json.dumps(asdict(info)) if as_json else "\n".join(_inspect_lines(delta, info, top)))


@cli.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON object.")
@click.option("--top", type=click.IntRange(0), default=TENSORS_SHOWN, show_default=True, help="Tensors shown.")
def stats(old, new, as_json, top):
    """Show which stored bits differ between OLD and NEW, and what a delta would cost."""
    with one_sentence():
        found = checkpoint_stats(old, new, bar)
    say(json.dumps(_stats_json(found)) if as_json else "\n".join(_stats_lines(found, top)))


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP as SystemExit with the shell's code (143, 129), so that what is half written is removed."""
    numbers = [signal.SIGTERM, signal.SIGHUP] if threading.current_thread() is threading.main_thread() else []
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) is signal.SIG_DFL}  # nohup ignores one

    def stop(number, _):
        for n in before:
            signal.signal(n, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
        raise SystemExit(128 + number)

    for n in before:
        signal.signal(n, stop)
    try:
        yield
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """What the system refuses (no such file, no permission, disk full) as a RepriseError."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise RepriseError(f"{where}{error.strerror or error}") from error


def say(text: str) -> None:
    """`text` and a line end on stdout, what its encoding lacks (a name that is not UTF-8) escaped.

    Raises:
        RepriseError: stdout takes no more; a closed pipe is left to Click.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered is flushed again at exit
        raise RepriseError(f"stdout: {error.strerror or error}") from error


@contextlib.contextmanager
def bar(label: str, nbytes: int) -> Iterator[Callable[[int], None]]:
    """Progress in bytes on stderr, only if it takes more than a second."""
    with tqdm(total=nbytes, desc=label, unit="B", unit_scale=True, unit_divisor=1000, delay=1, leave=False) as progress:
        yield progress.update


def size(nbytes: int) -> str:
    """Bytes in decimal units.

    >>> size(999), size(1_695_000)
    ('999 B', '1.7 MB')
    """
    amount, units = float(nbytes), iter(("kB", "MB", "GB", "TB", "PB"))
    unit = "B"
    while amount >= 999.5:
        amount, unit = amount / 1000, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"


def _share(part: float, whole: int) -> str:
    return f"{part / whole:.3%}" if whole else "-"


def _shown(name: str) -> str:
    """A tensor's name without control characters, which could write over the terminal."""
    return repr(name)[1:-1]


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Lines of a table: first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for first, *others in (head, *rows):
        cells = [first.ljust(widths[0]), *(text.rjust(n) for text, n in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells)


def _inspect_lines(path: str, info: DeltaInfo, top: int) -> Iterator[str]:
    sent = [t for t in info.tensors if t.changed is not None]
    changed, elements = sum(t.changed for t in sent), sum(t.elements for t in sent)
    taken = sum(nbytes == 0 for nbytes in info.other_files.values())
    kind = "folder" if info.folder else "file"
    yield f"{path}: intact, {size(info.delta_bytes)} for a {kind} of {size(info.new_bytes)}"
    yield f"operation {info.op}, {changed} of {elements} elements changed ({_share(changed, elements)})"
    yield (
        f"{len(info.tensors)} tensors, {len(info.tensors) - len(sent)} of them whole, {len(info.removed)} removed; "
        f"{len(info.other_files)} other files, {taken} of them as in OLD"
    )
    largest = sorted(info.tensors, key=lambda t: -t.nbytes)[:top]
    if largest:
        yield ""
        rows = [[_shown(t.name), t.dtype, t.kind, _changed(t), size(t.nbytes)] for t in largest]
        yield from _table(["largest blocks", "dtype", "travels as", "changed", "size"], rows)


def _changed(tensor: BlockInfo) -> str:
    return "-" if tensor.changed is None else _share(tensor.changed, tensor.elements)


def _stats_json(found: CheckpointStats) -> dict:
    tensors = [asdict(t) | {"distance": t.distance.tolist()} for t in found.tensors]
    return asdict(found) | {"tensors": tensors}


def _stats_lines(found: CheckpointStats, top: int) -> Iterator[str]:
    by_dtype = {}
    for tensor in found.tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    groups = [*sorted(by_dtype.items()), ("all", found.tensors)]
    yield f"{len(found.tensors)} tensors in both, {len(found.added)} added, {len(found.removed)} removed"
    yield ""
    yield from _table(["dtype", "elements", "changed", "share"], [_counts(name, group) for name, group in groups])
    changed = sum(t.changed for t in found.tensors)
    if changed:
        yield ""
        yield from _bound_lines(found, changed)
        yield ""
        spans = enumerate(sum(t.distance for t in found.tensors))
        yield from _table(["moved by, in ulp", "changes"], [[_span(i), _share(n, changed)] for i, n in spans if n])
    most = sorted((t for t in found.tensors if t.changed), key=lambda t: (-t.changed / t.elements, t.name))[:top]
    if most:
        yield ""
        yield from _table(["most changed", "elements", "changed", "share"], [_counts(t.name, [t]) for t in most])


def _bound_lines(found: CheckpointStats, changed: int) -> Iterator[str]:
    rows = []
    for op in OPERATIONS:
        bits = sum(t.bound_bits[op] for t in found.tensors)
        rows.append([op, f"{bits / changed:.2f}", size(round(bits / 8)), _share(bits / 8, found.tensor_bytes)])
    yield from _table(["entropy bound of", "bits a change", "in all", "of NEW"], rows)


def _counts(label: str, tensors: Iterable[TensorChange]) -> list[str]:
    changed, elements = sum(t.changed for t in tensors), sum(t.elements for t in tensors)
    return [_shown(label), str(elements), str(changed), _share(changed, elements)]


def _span(bit_length: int) -> str:
    """The distances of one bit length.

    >>> _span(1), _span(3), _span(12)
    ('1', '4-7', '2^11 to 2^12')
    """
    if bit_length == 1:
        return "1"
    low, high = 1 << bit_length - 1, 1 << bit_length
    return f"{low}-{high - 1}" if bit_length <= 10 else f"2^{bit_length - 1} to 2^{bit_length}"
