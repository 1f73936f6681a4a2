"""Other people's implementations, installed beside the environment and loaded only when asked for.

They live in a folder of their own (`make peers`): with torchao on the ordinary path, every `import transformers` would
load it, and print. A peer is an oracle or the other side of a benchmark; nothing in the library needs one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import logging
import os
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType

from reprise.errors import RepriseError

DISTRIBUTIONS = {
    "modelopt": "nvidia-modelopt",
    "compressed_tensors": "compressed-tensors",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
}


class PeerMissing(RepriseError):
    """A peer that is not installed here, or that cannot be imported; the message says what to do."""


def folder() -> Path:
    """Where peers are installed: `REPRISE_PEERS`, else `peers` in the environment."""
    return Path(os.environ.get("REPRISE_PEERS") or Path(sysconfig.get_path("data")) / "peers")


def version(name: str) -> str | None:
    """Installed version of the distribution that the module `name` comes from, or None."""
    top = name.partition(".")[0]
    found = importlib.metadata.distributions(name=DISTRIBUTIONS.get(top, top), path=[str(folder()), *sys.path])
    return next((distribution.version for distribution in found), None)


def available(name: str) -> str | None:
    """None when `load(name)` can be tried, else the reason why not, as one sentence."""
    return None if version(name) else f"{name.partition('.')[0]} is not installed: make peers"


def load(name: str) -> ModuleType:
    """The module `name` of a peer, imported without its greetings.

    The folder goes behind everything else on the path, so that a peer never replaces a library of the environment.

    Raises:
        PeerMissing: the peer is not installed, or its import fails.
    """
    if reason := available(name):
        raise PeerMissing(reason)
    if str(folder()) not in sys.path:
        sys.path.append(str(folder()))
    with _quiet():
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise PeerMissing(f"{name} {version(name)}: import failed: {error}") from error


@contextlib.contextmanager
def _quiet():
    """No warnings, log records or prints of an import; logging is as before afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
