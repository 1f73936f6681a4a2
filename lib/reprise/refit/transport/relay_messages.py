"""Messages of the relay tree: a small JSON header and, for a payload, its bytes. No pickle, every field checked.

Downwards, numbered 0, 1, ... within an attempt; each is answered by "ack" when the whole subtree has done it:

    open     attempt, members (the subtree in tree order), mode
    payload  number; the body is an encoded payload
    apply    number: apply the staged payload
    check    payloads: that many must be applied; the ack brings fingerprints
    commit   the attempt is official

and "stop", which ends the attempt and is not answered. Upwards, for "seq", the number of what is answered:

    ack      seq, fingerprints by receiver (after "check")
    failed   node (the receiver that failed or fell silent), reason
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reprise.errors import RepriseError
from reprise.refit.recovery.attempt import Attempt, Order
from reprise.refit.transport.common import TransportError
from reprise.refit.transport.intake import MODES

HEADER_BYTES = 1 << 18
MAX_MEMBERS = 1 << 12
MAX_NUMBER = (1 << 53) - 1  # whole numbers that every JSON reader keeps
REASON_CHARACTERS = 500
_NODE = re.compile("0|[1-9][0-9]{0,6}")
_FINGERPRINT = re.compile("[0-9a-zA-Z.-]{1,64}")


class MessageError(TransportError):
    """A message that no node of the tree writes."""


@dataclass(frozen=True)
class Message:
    """kind: one of FIELDS. order: of the attempt. fields: those of its kind. body: of a payload, otherwise empty."""

    kind: str
    order: Order
    fields: dict = field(default_factory=dict)
    body: bytes | memoryview = b""

    def pack(self) -> list:
        """Frames for `send_multipart`, of which `parse` is the inverse."""
        header = {"kind": self.kind, "order": list(self.order), **self.fields}
        return [json.dumps(header, separators=(",", ":")).encode(), self.body]


def parse(frames: Sequence[bytes | memoryview], body_bytes: int) -> Message:
    """The message in `frames`.

    Args:
        body_bytes: longest body accepted.

    Raises:
        MessageError: names the field that is missing, unknown or out of range.
    """
    if len(frames) != 2:
        raise MessageError(f"message: {len(frames)} frames, expected 2")
    head, body = frames
    if len(head) > HEADER_BYTES or len(body) > body_bytes:
        raise MessageError(f"message: {len(head)} + {len(body)} bytes, expected at most {HEADER_BYTES} + {body_bytes}")
    try:
        found = json.loads(bytes(head))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str) or found["kind"] not in FIELDS:
        raise MessageError(f"message: {bytes(head)[:80]!r}, expected a JSON object with kind {', '.join(FIELDS)}")
    kind = found.pop("kind")
    checks = {"order": _order, **FIELDS[kind]}
    if set(found) != set(checks):
        raise MessageError(f"{kind}: fields {sorted(found)}, expected {sorted(checks)}")
    for name, check in checks.items():
        if not check(found[name]):
            raise MessageError(f"{kind}: {name}={str(found[name])[:80]}: out of range")
    if bool(len(body)) != (kind == "payload"):
        raise MessageError(f"{kind}: body of {len(body)} bytes, expected {'some' if kind == 'payload' else 'none'}")
    order = tuple(found.pop("order"))
    if kind == "open" and Attempt(**found["attempt"]).order != order:
        raise MessageError(f"open: order={order}, expected that of {found['attempt']}")
    return Message(kind, order, found, body)


def _number(value) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def _order(value) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _attempt(value) -> bool:
    try:
        Attempt(**value)
    except (TypeError, RepriseError):
        return False
    return all(number <= MAX_NUMBER for number in value.values() if type(number) is int)


def _members(value) -> bool:
    if not (isinstance(value, list) and 0 < len(value) <= MAX_MEMBERS and all(map(_number, value))):
        return False
    return len(set(value)) == len(value)


def _fingerprints(value) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_MEMBERS:
        return False
    named = all(_NODE.fullmatch(node) for node in value)
    return named and all(isinstance(text, str) and _FINGERPRINT.fullmatch(text) for text in value.values())


def _mode(value) -> bool:
    return isinstance(value, str) and value in MODES


def _reason(value) -> bool:
    return isinstance(value, str) and len(value) <= REASON_CHARACTERS


_Check = Callable[[object], bool]
DOWN: dict[str, dict[str, _Check]] = {
    "open": {"seq": _number, "attempt": _attempt, "members": _members, "mode": _mode},
    "payload": {"seq": _number, "number": _number},
    "apply": {"seq": _number, "number": _number},
    "check": {"seq": _number, "payloads": _number},
    "commit": {"seq": _number},
    "stop": {},
}
UP: dict[str, dict[str, _Check]] = {
    "ack": {"seq": _number, "fingerprints": _fingerprints},
    "failed": {"node": _number, "reason": _reason},
}
FIELDS = {**DOWN, **UP}
