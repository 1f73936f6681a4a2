"""Native loaders of inference engines, which place a Hugging Face checkpoint in their own storage.

`TensorParallelModel` is one rank of an engine in vLLM's manner: fused and stacked parameters, each with a loader that
slices the canonical tensor and copies it. It covers what makes placement hard: heads split over ranks, a padded
vocabulary, experts split over ranks and inside, a projection stored transposed, a router kept in FP32.

`TransformersModel` is the loader of transformers itself, which builds new parameters with `cat` and `stack`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from reprise.errors import RepriseError
from reprise.labs.qwen3_moe import Architecture

VOCABULARY_MULTIPLE = 64  # vLLM's padding of the vocabulary


class TensorParallelModel:
    """Parameters of one rank and the loader that fills them.

    Args:
        architecture: of the checkpoint.
        tp: ranks; attention heads, vocabulary and the inside of experts are split over them.
        ep: groups of whole experts among the ranks; divides tp. Within a group an expert is split over tp / ep ranks.
        rank: this one.
        router_dtype: FP32 as some engines keep it, which casts; or the checkpoint's own, which does not.
        device: "cpu", or "meta" for shapes alone.

    Raises:
        RepriseError: heads, experts or widths that the ranks do not divide.
    """

    def __init__(
        self,
        architecture: Architecture,
        tp: int = 1,
        ep: int = 1,
        rank: int = 0,
        dtype: torch.dtype = torch.bfloat16,
        router_dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ):
        self.a, self.tp, self.ep, self.rank = architecture, tp, ep, rank
        self._check()
        a = architecture
        self.heads = a.num_attention_heads // tp
        # fewer key heads than ranks: each is held by several
        self.kv_heads, self.kv_repeats = max(1, a.num_key_value_heads // tp), max(1, tp // a.num_key_value_heads)
        self.experts = a.num_experts // ep
        self.width = a.moe_intermediate_size * ep // tp
        padded = -(-a.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        self.vocabulary = -(-padded // tp)
        self.parameters: dict[str, torch.Tensor] = {}
        for name, shape in self._shapes().items():
            kind = router_dtype if name.endswith("mlp.gate") else dtype
            self.parameters[name] = torch.zeros(shape, dtype=kind, device=device)

    def targets(self) -> dict[str, torch.Tensor]:
        return dict(self.parameters)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy this rank's share of each canonical tensor; returns the names of the parameters written."""
        return {loaded for name, tensor in weights if (loaded := self._load(name, tensor))}

    def _check(self) -> None:
        a, tp, ep = self.a, self.tp, self.ep
        if not 0 <= self.rank < tp:
            raise RepriseError(f"rank={self.rank}: expected 0 <= rank < tp={tp}")
        if tp % ep or a.num_experts % ep:
            raise RepriseError(f"ep={ep}: expected a divisor of tp={tp} and of {a.num_experts} experts")
        if a.num_attention_heads % tp or max(tp, a.num_key_value_heads) % min(tp, a.num_key_value_heads):
            raise RepriseError(
                f"tp={tp}: {a.num_attention_heads} heads or {a.num_key_value_heads} key heads do not fit"
            )
        if a.moe_intermediate_size * ep % tp:
            raise RepriseError(f"tp={tp}: expected tp / ep to divide the experts' width {a.moe_intermediate_size}")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        a, hidden = self.a, self.a.hidden_size
        found = {"embed_tokens": (self.vocabulary, hidden)}
        for layer in range(a.num_hidden_layers):
            at = f"layers.{layer}"
            found |= {
                f"{at}.input_layernorm": (hidden,),
                f"{at}.qkv_proj": ((self.heads + 2 * self.kv_heads) * a.head_dim, hidden),
                f"{at}.o_proj": (self.heads * a.head_dim, hidden),  # transposed
                f"{at}.q_norm": (a.head_dim,),
                f"{at}.k_norm": (a.head_dim,),
                f"{at}.post_attention_layernorm": (hidden,),
                f"{at}.mlp.gate": (a.num_experts, hidden),
                f"{at}.mlp.w13": (self.experts, 2 * self.width, hidden),
                f"{at}.mlp.w2": (self.experts, hidden, self.width),
            }
        return found | {"norm": (hidden,), "lm_head": (self.vocabulary, hidden)}

    def _load(self, name: str, tensor: torch.Tensor) -> str | None:
        parts = name.removeprefix("model.").removesuffix(".weight").split(".")
        at, leaf = ".".join(parts[:2]), parts[-1]
        if leaf in ("embed_tokens", "lm_head"):
            return self._load_vocabulary(leaf, tensor)
        if "experts" in parts:
            return self._load_expert(f"{at}.mlp", int(parts[parts.index("experts") + 1]), leaf, tensor)
        if leaf in ("q_proj", "k_proj", "v_proj"):
            return self._load_heads(f"{at}.qkv_proj", leaf, tensor)
        if leaf == "o_proj":
            width = self.heads * self.a.head_dim
            return self._copy(f"{at}.o_proj", ..., tensor.narrow(1, self.rank * width, width).t())
        return self._copy(f"{at}.mlp.gate" if leaf == "gate" else f"{at}.{leaf}" if at != leaf else leaf, ..., tensor)

    def _load_vocabulary(self, target: str, tensor: torch.Tensor) -> str:
        first = min(self.rank * self.vocabulary, len(tensor))
        rows = min(self.vocabulary, len(tensor) - first)
        return self._copy(target, slice(rows), tensor.narrow(0, first, rows))

    def _load_heads(self, target: str, leaf: str, tensor: torch.Tensor) -> str:
        queries, keys = self.heads * self.a.head_dim, self.kv_heads * self.a.head_dim
        if leaf == "q_proj":
            return self._copy(target, slice(queries), tensor.narrow(0, self.rank * queries, queries))
        first = queries if leaf == "k_proj" else queries + keys
        return self._copy(
            target, slice(first, first + keys), tensor.narrow(0, self.rank // self.kv_repeats * keys, keys)
        )

    def _load_expert(self, at: str, expert: int, leaf: str, tensor: torch.Tensor) -> str | None:
        inside = self.tp // self.ep
        local = expert - self.rank // inside * self.experts
        if not 0 <= local < self.experts:
            return None  # another group's
        first = self.rank % inside * self.width
        if leaf == "down_proj":
            return self._copy(f"{at}.w2", local, tensor.narrow(1, first, self.width))
        rows = slice(0, self.width) if leaf == "gate_proj" else slice(self.width, None)
        return self._copy(f"{at}.w13", (local, rows), tensor.narrow(0, first, self.width))

    def _copy(self, target: str, where, source: torch.Tensor) -> str:
        place = self.parameters[target][where]
        place.copy_(source.to(place.dtype))
        return target


class TransformersModel:
    """Qwen3MoeForCausalLM as `from_pretrained` loads it from a folder.

    Args:
        architecture: of the checkpoint.
    """

    def __init__(self, architecture: Architecture):
        self.architecture, self.model = architecture, None

    def load(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Save a checkpoint, load it and return the parameters of a new model, which `targets` returns from now on."""
        from safetensors.torch import save_file
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
        from transformers.utils import logging

        dtype = next(iter(weights.values())).dtype
        config = Qwen3MoeConfig(**vars(self.architecture), tie_word_embeddings=False, dtype=dtype)
        bar = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        with tempfile.TemporaryDirectory() as folder:
            save_file(dict(weights), Path(folder) / "model.safetensors", metadata={"format": "pt"})
            config.save_pretrained(folder)
            self.model = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=dtype)
        if bar:
            logging.enable_progress_bar()
        return self.targets()

    def targets(self) -> dict[str, torch.Tensor]:
        return dict(self.model.named_parameters())
