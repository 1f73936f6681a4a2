"""One try to bring every receiver from one version to the next, and the order that fences older ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from reprise.errors import RepriseError
from reprise.refit.delta import Delta
from reprise.refit.operations import check_operation

Order = tuple[int, int]
NO_ORDER: Order = (0, 0)  # before every attempt


class FencedError(RepriseError):
    """A newer coordinator or attempt has taken over; whoever gets this must stop."""


@dataclass(frozen=True)
class Attempt:
    """Who tries what.

    Args:
        generation: of the coordinator, from 1; unique to it, since it comes from a compare-and-set.
        number: of the attempt within the generation, from 1, never used twice.
        base_version, target_version: committed version, and the one after it.
        op: "xor" or "add" where every receiver is known to hold the base version, "overwrite" for a retry.
    """

    generation: int
    number: int
    base_version: int
    target_version: int
    op: str

    def __post_init__(self):
        for field in fields(self)[:4]:
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise RepriseError(f"{field.name}={value!r}: expected a whole number")
        if self.target_version != self.base_version + 1:
            raise RepriseError(f"target_version={self.target_version}: expected {self.base_version + 1}")
        check_operation(self.op)

    def __str__(self) -> str:
        return f"attempt {self.generation}.{self.number} ({self.base_version} -> {self.target_version}, {self.op})"

    @property
    def order(self) -> Order:
        """Later attempts compare greater, those of a later coordinator above all of an earlier one."""
        return self.generation, self.number

    @property
    def transfer(self) -> dict:
        """The fields of a Delta that belongs to this attempt."""
        return {
            "base_version": self.base_version,
            "target_version": self.target_version,
            "transfer_id": f"generation {self.generation}",
            "attempt": self.number,
        }

    def owns(self, delta: Delta) -> bool:
        return all(getattr(delta, field) == value for field, value in self.transfer.items())

    def dump(self) -> dict:
        """JSON fields, of which `Attempt(**fields)` is the inverse."""
        return asdict(self)
