"""Checkpoints for tests, written without the code under test."""

import json
from pathlib import Path

import numpy as np


def safetensors_bytes(tensors, metadata=None, padding=0):
    """A safetensors file from {name: (dtype, shape, data bytes)}, the header padded with spaces."""
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values())


def write_folder(folder, files):
    """Write {relative path: bytes or tensors} and return the folder."""
    for path, content in files.items():
        target = Path(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(safetensors_bytes(content) if isinstance(content, dict) else content)
    return Path(folder)


def contents(root):
    """{relative path: bytes} of every file below `root`, or {"": bytes} of a single file."""
    root = Path(root)
    if root.is_file():
        return {"": root.read_bytes()}
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def bf16(rng, *shape):
    """A BF16 tensor of normal values as (dtype, shape, data bytes)."""
    return "BF16", shape, (rng.normal(size=shape).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def stepped(rng, tensor, share=0.1):
    """`tensor` with about `share` of its words moved by one unit in the last place."""
    dtype, shape, data = tensor
    words = np.frombuffer(data, "<u2").copy()
    words += (rng.random(words.size) < share).astype("<u2")
    return dtype, shape, words.tobytes()


def small_pair(folder, seed=0):
    """OLD and NEW folders below `folder`: two shards each, sharded differently, with index, text and nested files."""
    rng = np.random.default_rng(seed)
    old = {f"layer.{i}.weight": bf16(rng, 4, 6) for i in range(4)}
    old |= {"scale": ("F32", (), b"\0\0\x80\x3f"), "nothing": ("F16", (0, 3), b""), "gone": bf16(rng, 3)}
    new = {name: stepped(rng, tensor) if tensor[0] == "BF16" else tensor for name, tensor in old.items()}
    new["fresh"] = bf16(rng, 5, 5)
    del new["gone"]
    common = {"config.json": b'{"a": 1}', "sub/tokenizer.txt": b"same" * 100}
    write_folder(folder / "old", _shards(old, 2) | common | {"note.txt": b"before"})
    write_folder(folder / "new", _shards(new, 3) | common | {"note.txt": b"after", "extra/empty": b""})
    return folder / "old", folder / "new"


def _shards(tensors, count):
    names, files, weight_map = list(tensors), {}, {}
    for k in range(count):
        path = f"model-{k + 1:05}-of-{count:05}.safetensors"
        part = names[k::count]
        files[path] = {name: tensors[name] for name in part}
        weight_map |= dict.fromkeys(part, path)
    return files | {"model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}
