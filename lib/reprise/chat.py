"""Language models behind a few methods: one on this machine, and one behind an endpoint (`Endpoint`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reprise.chat_endpoint import Endpoint
from reprise.chat_replay import Completion, Messages
from reprise.errors import RepriseError
from reprise.local_models import PACKAGED, ModelUnavailable, available, checkpoint

__all__ = ["ChatModel", "Completion", "Endpoint", "LocalModel", "ModelUnavailable", "available"]

DTYPES = ("float32", "bfloat16", "float16", "float64")
# tokens that begin an answer, as models write it at the start of a turn or of a line
YES, NO = ("Yes", " Yes", "yes", " yes", "YES"), ("No", " No", "no", " no", "NO")


class ChatModel(Protocol):
    """What a system asks of a language model: one reply to a list of {role, content} messages."""

    def chat(self, messages: Messages, response_format: Mapping[str, Any] | None = None) -> Completion: ...


class LocalModel:
    """A model and its tokenizer from a packaged model or a Hugging Face folder; nothing is downloaded.

    Args:
        name_or_path: "smollm2-135m", "minilm-l6-v2" (both from `make models`), or a folder with `config.json`.
        dtype: of the weights and the arithmetic: float32, bfloat16, float16 or float64.
        device: "cpu", "cuda", "cuda:1"; "auto" takes a GPU where there is one.
        threads: torch's CPU threads from now on, for the whole process; None leaves them.

    Attributes:
        folder: Hugging Face folder that is loaded.

    Raises:
        ModelUnavailable: the model is not here or not the pinned one; the message has the command that installs it.
        RepriseError: an unknown dtype, or threads below 1.

    `model` and `tokenizer` are loaded on first use. The first use of a packaged GGUF model converts it (20-60 s);
    later ones take seconds.
    """

    def __init__(
        self, name_or_path: str | Path, dtype: str = "float32", device: str = "auto", threads: int | None = None
    ):
        if dtype not in DTYPES:
            raise RepriseError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
        if threads is not None and threads < 1:
            raise RepriseError(f"threads={threads}: expected at least 1, or None")
        if str(name_or_path) in PACKAGED:
            self.folder = checkpoint(str(name_or_path))
        else:
            self.folder = Path(name_or_path)
            if not (self.folder / "config.json").is_file():
                raise ModelUnavailable(
                    f"name_or_path={str(name_or_path)!r}: expected {', '.join(PACKAGED)}, or a folder with config.json"
                )
        self.dtype, self.threads = dtype, threads
        import torch

        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if threads is not None:
            torch.set_num_threads(threads)

    @cached_property
    def model(self):
        """transformers model in evaluation mode; a causal language model where the folder's config names one."""
        import torch
        from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

        with _quiet():
            config = AutoConfig.from_pretrained(self.folder, local_files_only=True)
            causal = any(name.endswith("ForCausalLM") for name in config.architectures or ())
            loader = AutoModelForCausalLM if causal else AutoModel
            loaded = loader.from_pretrained(self.folder, dtype=getattr(torch, self.dtype), local_files_only=True)
        return loaded.to(self.device).eval()

    @cached_property
    def tokenizer(self):
        """transformers tokenizer."""
        from transformers import AutoTokenizer

        with _quiet():
            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    def logprobs(self, text: str) -> np.ndarray:
        """log p(token t | tokens before t) for every token of the text but the first, which has nothing before it.

        Args:
            text: at least two tokens of the model's tokenizer; no special token is added.

        Returns:
            (tokens - 1,) float64, natural logarithms.

        Raises:
            RepriseError: the model predicts no next token (a sentence encoder), or the text has fewer than two tokens.
        """
        import torch

        if not self.model.can_generate():
            raise RepriseError(f"{self.folder.name}: {type(self.model).__name__} predicts no next token")
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids.to(self.device)
        if ids.shape[1] < 2:
            raise RepriseError(f"text={text!r}: expected at least 2 tokens, found {ids.shape[1]}")
        with torch.inference_mode():
            logits = self.model(ids).logits[0, :-1].double()
            return torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0].cpu().numpy()

    def yes_no(self, messages: Messages) -> float:
        """The model's probability that its next word is yes, among yes and no.

        Args:
            messages: {role, content} turns, the last one a question; the model's chat template is applied.

        Returns:
            p(yes) / (p(yes) + p(no)), each summed over its spellings that are one token.

        Raises:
            RepriseError: the model predicts no next token, or has no chat template.
        """
        import torch

        if not self.model.can_generate():
            raise RepriseError(f"{self.folder.name}: {type(self.model).__name__} predicts no next token")
        if not self.tokenizer.chat_template:
            raise RepriseError(f"{self.folder.name}: no chat template: expected an instruction-tuned model")
        text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids.to(self.device)
        with torch.inference_mode():
            logits = self.model(ids, logits_to_keep=1).logits[0, -1].double()
        yes, no = (torch.logsumexp(logits[self._single_tokens(words)], 0) for words in (YES, NO))
        return float(torch.sigmoid(yes - no))

    def _single_tokens(self, words: tuple[str, ...]) -> list[int]:
        found = [self.tokenizer(word, add_special_tokens=False).input_ids for word in words]
        return sorted({ids[0] for ids in found if len(ids) == 1} - {self.tokenizer.unk_token_id})


@contextmanager
def _quiet():
    """No progress bars and no load report, which a notebook would save as output that differs between machines."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
