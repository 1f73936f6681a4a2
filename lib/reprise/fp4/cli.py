"""`reprise fp4`: tensors of safetensors files in NVFP4 and MXFP4."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from reprise.errors import RepriseError
from reprise.fp4.errors import BlockShapeError
from reprise.fp4.mxfp4 import MODES
from reprise.fp4.tensor import FORMATS, SCALES
from reprise.fp4.tensor_file import Report, quantise_file

PATH = click.Path(path_type=str)
TENSORS_SHOWN = 20


@click.group()
def cli():
    """FP4 formats for safetensors files."""


@cli.command()
@click.argument("file", type=PATH)
@click.option("-o", "--output", type=PATH, help="Write codes and scales here; without it the file is only measured.")
@click.option("--format", "fmt", type=click.Choice(list(FORMATS)), default="nvfp4", show_default=True)
@click.option("--scale", type=click.Choice(SCALES), default="tensor", show_default=True, help="NVFP4's global scale.")
@click.option("--mx-mode", type=click.Choice(MODES), default="floor", show_default=True, help="MXFP4's exponent rule.")
@click.option("--pad", is_flag=True, help="Fill the last block of an axis that does not divide.")
@click.option("--only", multiple=True, default=("*",), help="Shell pattern of tensor names; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Every tensor, as one JSON object.")
@click.option("--top", type=click.IntRange(0), default=TENSORS_SHOWN, show_default=True, help="Tensors shown.")
def quantise(file, output, fmt, scale, mx_mode, pad, only, as_json, top):
    """Quantise the matrices of FILE and show what it costs each of them.

    Columns: bytes of codes and scales; error, root mean square over that of the tensor; range of the block scales;
    shares of values that saturate, and that become zero without being it.
    """
    try:
        reports, others = quantise_file(file, output, fmt, scale, mx_mode, pad, only)
    except BlockShapeError as error:
        raise BlockShapeError(str(error).replace("pad=True", "--pad")) from None
    except OSError as error:
        raise RepriseError(f"{error.filename or file}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps({"quantised": [asdict(report) for report in reports], "others": others}))
        return
    counted = f"{len(reports)} tensor{'s' * (len(reports) != 1)}"
    click.echo(f"{file}: {counted} in {fmt}, {len(others)} left as they are")
    if output:
        click.echo(f"{output}: written")
    worst = sorted(reports, key=lambda report: -report.error)[:top]
    for line in _table([("tensor", "shape", "bytes", "error", "scales", "saturated", "to zero"), *map(_row, worst)]):
        click.echo(line)


def _row(report: Report) -> tuple[str, ...]:
    return (
        repr(report.name)[1:-1],  # no control characters
        "x".join(map(str, report.shape)),
        str(report.nbytes),
        f"{report.error:.2%}",
        f"{report.lowest:.2g} to {report.highest:.2g}",
        f"{report.saturated:.2%}",
        f"{report.zeros:.2%}",
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(others, widths[1:], strict=True))])
        for first, *others in rows
    ]
