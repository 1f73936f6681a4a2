"""Every write of a native loader into the receiver's storage, seen below PyTorch's dispatcher.

A dispatch mode is thread-local and sees operations, so three ways of writing pass it by: another thread, replacing a
parameter (`setattr`, `.data =`), and memory reached through NumPy or a pointer. `copy_plan.verify_plan` finds those.

Source: NeMo-DCR, interception of the loader's storage copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reprise.refit.placement.placements import PlanError

COPY = torch.ops.aten.copy_.default

# called with the target's name, the destination, the source, and the canonical names that the source's values stem from
OnCopy = Callable[[str, torch.Tensor, torch.Tensor, frozenset[str]], None]


class CopyRecorder(TorchDispatchMode):
    """While active, copies into targets are handed to `on_copy` instead of being made; everything else runs.

    Args:
        sources: canonical name -> the tensor given to the loader for it.
        targets: target name -> the receiver's tensor; of tied ones the first name stands for all.
        on_copy: takes each copy.

    Raises:
        PlanError: out of the loader, on any other operation that writes into a target's storage.
    """

    def __init__(self, sources: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor], on_copy: OnCopy):
        super().__init__()
        self._on_copy = on_copy
        self.altered: set[str] = set()  # sources that the loader wrote into
        # identities of storages, which stay alive with `_held`
        self._held = [tensor.untyped_storage() for tensor in (*sources.values(), *targets.values())]
        self._sources = {id(tensor.untyped_storage()): name for name, tensor in sources.items()}
        self._origins = {storage: frozenset([name]) for storage, name in self._sources.items()}
        self._targets = {id(tensor.untyped_storage()): name for name, tensor in reversed(list(targets.items()))}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        written = list(_written(func, args, kwargs))
        hit = next((name for tensor in written if (name := self._target(tensor)) is not None), None)
        if hit is None:
            result = func(*args, **kwargs)
            self._follow([args, kwargs], [result, written])
            written_storages = {id(tensor.untyped_storage()) for tensor in written}
            self.altered |= {self._sources[storage] for storage in written_storages & self._sources.keys()}
            return result
        if func is not COPY:
            raise PlanError(f"target {hit!r}: the loader writes it by {func}, expected copy_ only")
        target, source = args[:2]
        self._on_copy(hit, target, source, self._origin(source))
        return target

    def _target(self, tensor: torch.Tensor) -> str | None:
        return self._targets.get(id(tensor.untyped_storage()))

    def _origin(self, tensor: torch.Tensor) -> frozenset[str]:
        return self._origins.get(id(tensor.untyped_storage()), frozenset())

    def _follow(self, inputs, outputs) -> None:
        """What an operation returns or writes stems from the names its inputs stem from."""
        names = frozenset().union(*map(self._origin, _tensors(inputs)))
        if names:
            for tensor in _tensors(outputs):
                storage = tensor.untyped_storage()
                self._held.append(storage)
                self._origins[id(storage)] = self._origin(tensor) | names


def _written(func, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """Tensors among the arguments that the operation's schema says it writes."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from _tensors(value)


def _tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
