"""Other ways to send what changed between OLD and NEW weights, each from its description, as bytes a receiver can use.

Every peer takes two flat uint16 arrays of BF16 storage. `unavailable` names the package or tool it lacks here.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import zstandard

from reprise.labs.refit_peers import nemo_rl_encode


@dataclass(frozen=True)
class Peer:
    """One row of the comparison; it gets 2^-`cut` of the elements, since some would take minutes on all."""

    name: str
    encode: Callable[[np.ndarray, np.ndarray], bytes]
    needs: tuple[str, ...] = ()
    cut: int = 0

    @property
    def unavailable(self) -> str:
        return ", ".join(name for name in self.needs if find_spec(name) is None and shutil.which(name) is None)


def zstd(data, level: int = 1) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def as_bf16(words: np.ndarray):
    import torch

    return torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)


def index_patch(old: np.ndarray, new: np.ndarray) -> bytes:
    """A sparse safetensors patch as published ones are: torch, int32 indices and new values, zstd level 1."""
    import torch
    from safetensors.torch import save

    before, after = as_bf16(old), as_bf16(new)
    index = (before.view(torch.int16) != after.view(torch.int16)).nonzero().squeeze(1)
    return zstd(save({"w.indices": index.to(torch.int32), "w.values": after[index]}))


def index_patch_numpy(old: np.ndarray, new: np.ndarray) -> bytes:
    """The same patch with NumPy's vectorised scan, the fastest we could write it."""
    from safetensors.numpy import save

    index = np.flatnonzero(old != new)
    return zstd(save({"w.indices": index.astype(np.int32), "w.values": new[index]}))


def zstd_xor(old: np.ndarray, new: np.ndarray) -> bytes:
    return zstd(old ^ new)


def zstd_patch_from(old: np.ndarray, new: np.ndarray) -> bytes:
    """The command line tool at its default level; the library's raw dictionaries compress far worse below level 9."""

    def run(before: Path, after: Path, patch: Path) -> None:
        subprocess.run(["zstd", "-q", "--patch-from", before, after, "-o", patch], check=True, stderr=subprocess.PIPE)

    return patch_file(run, old, new)


def zstd_dictionary(old: np.ndarray, new: np.ndarray) -> bytes:
    """OLD as a raw-content dictionary of zstd level 9, with a window over both."""
    parameters = zstandard.ZstdCompressionParameters.from_level(9, window_log=(old.nbytes + new.nbytes).bit_length())
    dictionary = zstandard.ZstdCompressionDict(old.tobytes(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(new)


def bsdiff(old: np.ndarray, new: np.ndarray) -> bytes:
    import bsdiff4

    return bsdiff4.diff(old.tobytes(), new.tobytes())


def xdelta(old: np.ndarray, new: np.ndarray) -> bytes:
    import pyxdelta

    return patch_file(lambda *paths: pyxdelta.run(*map(str, paths)), old, new)


def zipnn_xor(old: np.ndarray, new: np.ndarray) -> bytes:
    from zipnn import ZipNN

    return bytes(ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1).compress((old ^ new).tobytes()))


def patch_file(run: Callable[[Path, Path, Path], object], old: np.ndarray, new: np.ndarray) -> bytes:
    """What `run(old file, new file, patch file)` writes."""
    with tempfile.TemporaryDirectory() as folder:
        before, after, patch = (Path(folder, name) for name in ("old", "new", "patch"))
        old.tofile(before)
        new.tofile(after)
        run(before, after, patch)
        return patch.read_bytes()


PEERS = (
    Peer("NeMo-RL layout", nemo_rl_encode, ("torch",)),
    Peer("index patch", index_patch, ("torch", "safetensors")),
    Peer("index patch, NumPy scan", index_patch_numpy, ("safetensors",)),
    Peer("zstd of the XOR", zstd_xor),
    Peer("zstd --patch-from", zstd_patch_from, ("zstd",), 2),
    Peer("zstd -9, OLD as dictionary", zstd_dictionary, cut=4),
    Peer("bsdiff4", bsdiff, ("bsdiff4",), 4),
    Peer("xdelta3", xdelta, ("pyxdelta",), 2),
    Peer("zipnn of the XOR", zipnn_xor, ("zipnn",), 2),
)
