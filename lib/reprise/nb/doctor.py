"""What this machine and environment offer, and what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata, util

from reprise.nb import machine, paths
from reprise.nb.errors import CheckoutNotFound


def lines() -> Iterator[str]:
    """The report, one fact a line."""
    if util.find_spec("torch"):
        import torch  # noqa: F401 - describes itself in machine.environment
    found = machine.environment()
    yield f"python      {found['python']} at {sys.executable}"
    yield f"platform    {found['platform']}"
    yield f"checkout    {_checkout()}"
    yield f"cpu         {found['cpu']['model']}, {found['cores']} cores usable"
    yield f"vector      {' '.join(found['cpu']['vector_flags']) or 'unknown'}"
    yield f"memory      {found['memory_bytes'] / 1e9:.1f} GB"
    yield f"blas        {found['blas']}"
    yield f"threads     {' '.join(f'{name}={value}' for name, value in found['threads'].items()) or 'not set'}"
    yield f"torch       {_torch(found['torch'])}"
    yield f"gpu         {', '.join(found['gpu']) or 'none found'}"
    yield f"packages    {' '.join(f'{name}={version}' for name, version in found['packages'].items())}"
    for extra, missing in missing_extras().items():
        yield f"extra       {extra}: {', '.join(missing) if missing else 'complete'}"


def missing_extras(package: str = "reprise") -> dict[str, list[str]]:
    """Requirements of each extra of a package that are absent or of another version, as written there."""
    from packaging.requirements import Requirement

    distribution = metadata.distribution(package)
    extras = {name: [] for name in distribution.metadata.get_all("Provides-Extra") or ()}
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.name == package or _satisfied(requirement):
            continue
        for extra, missing in extras.items():
            if requirement.marker.evaluate({"extra": extra}):
                missing.append(f"{requirement.name}{requirement.specifier}")
    return extras


def _satisfied(requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _checkout() -> str:
    try:
        return f"{paths.root()}, {len(paths.notebooks())} notebooks"
    except CheckoutNotFound:
        return "none here: system commands work, notebook commands need one"


def _torch(state: dict | None) -> str:
    if state is None:
        return "not installed"
    device = f"CUDA {state['cuda']}" if state["cuda"] else "CPU build"
    return f"{metadata.version('torch')}, capability {state['capability']}, {state['threads']} threads, {device}"
