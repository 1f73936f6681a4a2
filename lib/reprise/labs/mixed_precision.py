"""BF16 storage over FP32 AdamW masters: what one optimiser step does to the bits that a rollout engine would read.

Forward and backward run in FP32 on the stored values, so the gradients are those of the BF16 model; only the
arithmetic is finer than a GPU's, which also makes it reproducible on any CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reprise.errors import RepriseError

# the paper names AdamW and gives no setting; .9/.95 are the usual ones for language models, the rest torch's
BETAS, EPS, WEIGHT_DECAY = (0.9, 0.95), 1e-8, 0.01

STARTS = ("fp32", "grid")
STORAGE = {"bf16": torch.bfloat16, "fp32": torch.float32}


class TrainingError(RepriseError):
    """A training setting that has no meaning; the message names it."""


@dataclass(frozen=True)
class Change:
    """One parameter before and after one optimiser step.

    Attributes:
        name: the model's parameter name.
        before, after: stored weights, BF16 (FP32 under storage="fp32").
        master: FP32 master weights before the step.
        update: FP32, what AdamW added to them.
    """

    name: str
    before: torch.Tensor
    after: torch.Tensor
    master: torch.Tensor
    update: torch.Tensor


class MasterWeights:
    """FP32 masters, AdamW and the stored weights of a model whose parameters are FP32 tensors.

    Args:
        model: its parameters are overwritten with the stored values and receive the gradients.
        start: "fp32" keeps the masters as they were drawn and rounds them into storage (training from an
            initialisation); "grid" starts the masters at the stored BF16 values (training from a published checkpoint).
        storage: "bf16", or "fp32", the control in which no update is rounded away.
    """

    def __init__(self, model: torch.nn.Module, start: str = "grid", storage: str = "bf16"):
        if start not in STARTS:
            raise TrainingError(f"start={start!r}: expected one of {', '.join(STARTS)}")
        if storage not in STORAGE:
            raise TrainingError(f"storage={storage!r}: expected one of {', '.join(STORAGE)}")
        self.dtype = STORAGE[storage]
        self.parameters = dict(model.named_parameters())
        self.masters = {name: p.detach().clone() for name, p in self.parameters.items()}
        if start == "grid":
            for master in self.masters.values():
                master.copy_(master.bfloat16())
        self.optimiser = torch.optim.AdamW(
            self.masters.values(), betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self._store()

    def stored(self) -> dict[str, torch.Tensor]:
        """The weights as a checkpoint or a refit would read them."""
        return {name: master.to(self.dtype, copy=True) for name, master in self.masters.items()}

    def step(self, lr: float) -> list[Change]:
        """One AdamW step with the gradients that the model's parameters hold; they are cleared."""
        before = {name: master.clone() for name, master in self.masters.items()}
        for name, parameter in self.parameters.items():
            self.masters[name].grad, parameter.grad = parameter.grad, None
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.step()
        self.optimiser.zero_grad()
        self._store()
        return [
            Change(
                name, old.to(self.dtype), self.masters[name].to(self.dtype, copy=True), old, self.masters[name] - old
            )
            for name, old in before.items()
        ]

    @torch.no_grad()
    def _store(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(self.masters[name].to(self.dtype))


def whole_model(changes: list[Change]) -> tuple[torch.Tensor, torch.Tensor]:
    """All stored weights before and after a step, each as one flat tensor."""
    return torch.cat([c.before.flatten() for c in changes]), torch.cat([c.after.flatten() for c in changes])


def warmed_up(lr: float, step: int, warmup: int) -> float:
    """Learning rate of step 1, 2, ... under a linear warm-up over `warmup` steps; 0 is no warm-up."""
    return lr * min(1.0, step / warmup) if warmup else lr


def parameter_group(name: str) -> str:
    """embedding, head, norms, router, experts, attention or mlp, from a transformers parameter name."""
    if "norm" in name:
        return "norms"
    if name.endswith(".mlp.gate.weight"):
        return "router"
    for mark, group in ((".experts.", "experts"), (".self_attn.", "attention"), (".mlp.", "mlp"), ("lm_head", "head")):
        if mark in name:
            return group
    return "embedding"
