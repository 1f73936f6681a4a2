"""A checkpoint on disk: one safetensors file, or a Hugging Face folder with shards, index and other files.

Tensors are paired by name, not by file, so OLD and NEW may be sharded differently. Two files of one folder may hold
the same names (`model.safetensors` beside `model.fp16.safetensors`); then the file's own name decides, its shard
number aside.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from reprise.refit.checkpoints.safetensors_file import CheckpointError, Entry, SafetensorsFile

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
SHARD_NUMBER = re.compile(r"-\d+-of-\d+(?=\.safetensors$)")
MAX_INDEX_BYTES = 100_000_000
MAX_PATH_BYTES, MAX_NAME_BYTES = 4096, 255  # PATH_MAX and NAME_MAX of Linux
MAX_PARTS = 32  # folders within folders; ours, checkpoints have two or three


def check_path(path: str) -> str:
    """`path` if it is a plain relative path that stays below its folder.

    Raises:
        CheckpointError: absolute, with `.`, `..`, an empty part, a backslash or a control character, not
            UTF-8, too long or too deep.
    """
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and not re.search(r"[\\\x00-\x1f\x7f]", path)
    try:
        short = len(path.encode()) <= MAX_PATH_BYTES and all(len(part.encode()) <= MAX_NAME_BYTES for part in parts)
        short = short and len(parts) <= MAX_PARTS
    except UnicodeEncodeError:
        plain = short = False
    if not plain or not short:
        raise CheckpointError(
            f"file name {path[:200]!r}: expected a relative path in UTF-8 with '/' between its parts and without "
            "'..', backslash or control characters"
        )
    return path


@dataclass(frozen=True)
class Located:
    """A tensor and the file that holds it; `path` is relative to the checkpoint."""

    path: str
    file: SafetensorsFile
    entry: Entry


@dataclass(frozen=True)
class Checkpoint:
    """Opened headers of every safetensors file, and the paths of the other files, keyed by sorted relative path.

    stamps: (bytes, modification time in ns) of each of the other files when this was opened.
    """

    root: Path
    weights: dict[str, SafetensorsFile]
    others: dict[str, Path]
    stamps: dict[str, tuple[int, int]]

    @classmethod
    def open(cls, root: str | os.PathLike) -> Checkpoint:
        """Read the headers of a safetensors file or of all safetensors files below a folder.

        Symbolic links are followed, as in the Hugging Face cache.

        Raises:
            CheckpointError: nothing there, no safetensors file, a damaged one, a shard that an index names and the
                folder lacks, a broken or circular link, a file name that could not be rebuilt elsewhere, or a whole
                download cache.
        """
        root = _root(root)
        found = {path: file for path, file in _files(root)} if root.is_dir() else {check_path(root.name): root}
        names = [path for path in found if path.endswith(SUFFIX)] if root.is_dir() else list(found)
        if not names:
            raise CheckpointError(f"{root}: holds no {SUFFIX} file: expected one, or a folder with some")
        weights = {path: SafetensorsFile.open(found.pop(path)) for path in sorted(names)}
        others = dict(sorted(found.items()))
        checkpoint = cls(root, weights, others, {path: _stamp(file) for path, file in others.items()})
        checkpoint._check_indexes()
        return checkpoint

    @property
    def is_folder(self) -> bool:
        return self.root.is_dir()

    @property
    def nbytes(self) -> int:
        """Size of all files together."""
        return sum(file.size for file in self.weights.values()) + sum(p.stat().st_size for p in self.others.values())

    def tensors(self) -> Iterator[Located]:
        """Every tensor, file after file in the order of its data."""
        for path, file in self.weights.items():
            for entry in file.entries:
                yield Located(path, file, entry)

    @cached_property
    def _by_name(self) -> dict[str, list[Located]]:
        by_name = {}
        for tensor in self.tensors():
            by_name.setdefault(tensor.entry.name, []).append(tensor)
        return by_name

    def find(self, path: str, name: str) -> Located | None:
        """The tensor `name` that a file at `path` of another checkpoint continues, or None.

        In the same folder: that of the same file, else of the same file but for its shard number, else the only one.
        """
        near = [t for t in self._by_name.get(name, ()) if posixpath.dirname(t.path) == posixpath.dirname(path)]
        for same in ([t for t in near if t.path == path], [t for t in near if unsharded(t.path) == unsharded(path)]):
            if same:
                return same[0]
        return near[0] if len(near) == 1 else None

    def check_unchanged(self, others: Iterable[str] = ()) -> None:
        """Raise CheckpointError if a safetensors file, or one of `others`, was written since this was opened."""
        for file in self.weights.values():
            file.check_unchanged()
        for path in others:
            if _stamp(self.others[path]) != self.stamps[path]:
                raise CheckpointError(f"{self.others[path]}: changed while it was read")

    def _check_indexes(self) -> None:
        for path, index in self.others.items():
            if not path.endswith(INDEX_SUFFIX):
                continue
            held = {(t.path, t.entry.name) for t in self.tensors()}
            for name, shard in _weight_map(index):
                if (posixpath.join(posixpath.dirname(path), shard), name) not in held:
                    raise CheckpointError(
                        f"{index}: says that {shard[:200]!r} holds tensor {name[:200]!r}: it does not"
                    )


def unsharded(path: str) -> str:
    """`path` without its shard number: model-00001-of-00002.safetensors and model.safetensors are one checkpoint.

    >>> unsharded("unet/model-00001-of-00002.safetensors")
    'unet/model.safetensors'
    """
    return SHARD_NUMBER.sub("", path)


def _root(path: str | os.PathLike) -> Path:
    if not os.fspath(path):
        raise CheckpointError("a checkpoint's path is empty: expected a safetensors file or a folder")
    root = Path(path)
    if not root.exists():
        raise CheckpointError(f"{root}: no such file or folder")
    if not root.is_dir() and not root.is_file():  # opening a pipe would wait for its writer
        raise CheckpointError(f"{root}: is not a regular file or folder")
    if (root / "blobs").is_dir() and (root / "snapshots").is_dir():
        raise CheckpointError(
            f"{root}: a Hugging Face cache of several versions: expected a folder below its snapshots"
        )
    return root


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _weight_map(index: Path) -> list[tuple[str, str]]:
    if index.stat().st_size > MAX_INDEX_BYTES:
        raise CheckpointError(f"{index}: expected an index below {MAX_INDEX_BYTES} bytes")
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        pairs = [(name, shard) for name, shard in weight_map.items() if isinstance(shard, str)]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pairs = weight_map = None
    if pairs is None or len(pairs) != len(weight_map):
        raise CheckpointError(f'{index}: expected a JSON object with a "weight_map" from tensor to file name')
    return pairs


def _files(folder: Path, above: tuple[str, ...] = (), prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Relative path and path of every file below `folder`, links followed."""
    real = os.path.realpath(folder)
    if real in above:
        raise CheckpointError(f"{folder}: a symbolic link that leads back to {real}")
    for item in sorted(folder.iterdir()):
        path = check_path(str(PurePosixPath(prefix, item.name)))
        if item.is_dir():
            yield from _files(item, (*above, real), path)
        elif item.is_file():
            yield path, item
        else:
            raise CheckpointError(f"{item}: neither a file nor a folder (a broken link, a socket or a device)")
