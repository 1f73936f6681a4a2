"""The small file beside resident weights that says what they are; replaced as a whole at every change."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from reprise.durable import FS, atomic_write
from reprise.errors import RepriseError
from reprise.refit.recovery.attempt import NO_ORDER, Attempt, Order

FIELDS = ("weights", "version", "fence", "attempt", "applied")
FILE = "state.json"


class ResidentError(RepriseError):
    """A store of resident weights that is missing, damaged or asked for something out of turn."""


@dataclass(frozen=True)
class ResidentState:
    """What is known of the weights.

    Args:
        weights: name of the file with the bits.
        version: what the bits are, where no attempt is open.
        fence: attempts up to this order are refused.
        attempt: open attempt; the bits may be old, new or mixed.
        applied: payloads of the attempt that are on the disk.
    """

    weights: str
    version: int
    fence: Order = NO_ORDER
    attempt: Attempt | None = None
    applied: frozenset[int] = frozenset()

    def write(self, folder: Path, fs: FS) -> None:
        attempt = self.attempt and self.attempt.dump()
        values = (self.weights, self.version, list(self.fence), attempt, sorted(self.applied))
        atomic_write(folder / FILE, json.dumps(dict(zip(FIELDS, values, strict=True))).encode(), fs=fs)

    @classmethod
    def read(cls, folder: Path) -> ResidentState:
        """Inverse of `write`.

        Raises:
            ResidentError: there is no state, or it is not what `write` writes.
        """
        path = folder / FILE
        try:
            fields = json.loads(path.read_bytes())
            if not isinstance(fields, dict) or tuple(fields) != FIELDS:
                raise ValueError(f"expected {', '.join(FIELDS)}")
            attempt = fields["attempt"]
            if attempt is not None:
                attempt = Attempt(**attempt)
            numbers = [fields["version"], *fields["fence"], *fields["applied"]]
            if len(fields["fence"]) != 2 or any(type(n) is not int or n < 0 for n in numbers):
                raise ValueError("expected whole numbers, and two of them as fence")
            if not re.fullmatch(r"weights-\d+\.safetensors", fields["weights"]):
                raise ValueError(f"weights={fields['weights']!r}: expected weights-<number>.safetensors")
        except FileNotFoundError:
            raise ResidentError(f"{path}: missing, expected the state of a store; create() makes one") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise ResidentError(f"{path}: damaged: {error}") from None
        return cls(fields["weights"], fields["version"], tuple(fields["fence"]), attempt, frozenset(fields["applied"]))
