"""Payloads through an object store: uploaded once, listed by a manifest of the attempt, downloaded by every receiver.

    <prefix>/attempt-<generation>.<number>/part-...        the payloads, as `bundle` writes them
    <prefix>/attempt-<generation>.<number>/manifest.json   last, and once
    <prefix>/attempt-<generation>.<number>/answer-<name>   what a receiver says when it is done or has failed

Every download crosses the boundary between the clusters: with R receivers, R times the payload.

Source: NeMo-DCR, object-store transport; the answers, which let the two sides meet nowhere else, are ours.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from reprise.errors import RepriseError
from reprise.refit.frame import DEFAULT_LIMITS, Limits
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.transport.bundle import WINDOW, Manifest, read_manifest, read_parts, write_bundle
from reprise.refit.transport.common import ManifestError, ReceiverFailed, TransportTimeout, tried
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.places import Place

Found = TypeVar("Found")

ANSWER_BYTES = 1 << 12
POLL = 0.05  # seconds before the second look, doubled up to the longest
LONGEST_POLL = 1.0
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class StoreTransport:
    """Both ends of a store; each side opens its own.

    Args:
        place: where the objects go.
        prefix: key they all start with.
        window: payloads in memory at either end.
        limits: what a payload may ask for.
    """

    def __init__(self, place: Place, prefix: str = "refit", *, window: int = WINDOW, limits: Limits = DEFAULT_LIMITS):
        self.place, self.prefix, self._window, self._limits = place, prefix, window, limits

    # -- the source --------------------------------------------------------------------------------------------------

    def send(self, attempt: Attempt, payloads: Iterable[bytes]) -> Manifest:
        """Upload payloads 0, 1, ... as they are made, and then the manifest; errors as `write_bundle`."""
        return write_bundle(self.place, self._room(attempt), attempt.dump(), payloads, window=self._window)

    def answers(self, attempt: Attempt, receivers: Collection[str], timeout: float) -> dict[str, str]:
        """Fingerprint of the bits of every one of `receivers`, in whatever order they come.

        Raises:
            ReceiverFailed: one of them says so.
            TransportTimeout: one of them says nothing within `timeout` seconds.
        """
        give_up, found = time.monotonic() + timeout, {}
        for name in receivers:
            key = f"{self._room(attempt)}/answer-{check_name(name)}"
            raw = _poll(lambda key=key: tried(lambda: self.place.get(key, ANSWER_BYTES)), give_up)
            if raw is None:
                raise TransportTimeout(f"receiver {name}: no answer to {attempt} within timeout={timeout} s")
            ok, text = parse_answer(raw)
            if not ok:
                raise ReceiverFailed(name, text)
            found[name] = text
        return found

    # -- a receiver --------------------------------------------------------------------------------------------------

    def receive(self, attempt: Attempt, name: str, intake: Intake, mode: str = "sync", timeout: float = 600.0) -> str:
        """Take part in `attempt` as `name`: download, apply or stage and apply, answer; returns the fingerprint.

        Raises:
            TransportTimeout: no manifest within `timeout` seconds.
            ManifestError, UnreachableError, PayloadError, FencedError and others: this receiver's part failed, and
                the answer says so if the store can be reached.
        """
        key = f"{self._room(attempt)}/answer-{check_name(name)}"
        try:
            found = self._take(attempt, intake, mode, timeout)
        except (RepriseError, OSError) as error:
            with suppress(RepriseError):  # the error that is under way tells more
                self.place.put(key, pack_answer(False, str(error)))
            raise
        tried(lambda: self.place.put(key, pack_answer(True, found)))
        return found

    def _take(self, attempt: Attempt, intake: Intake, mode: str, timeout: float) -> str:
        intake.begin(attempt, mode)
        give_up = time.monotonic() + timeout
        manifest = _poll(lambda: read_manifest(self.place, self._room(attempt), self._limits.frame_bytes), give_up)
        if manifest is None:
            raise TransportTimeout(f"{attempt}: no manifest within timeout={timeout} s")
        if manifest.about != attempt.dump():
            raise ManifestError(f"manifest: of {manifest.about}, expected {attempt}")
        for number, payload in enumerate(read_parts(self.place, self._room(attempt), manifest, window=self._window)):
            intake.accept(number, payload)
        if mode == "async":
            for number in range(len(manifest.parts)):
                intake.apply(number)
        return intake.check(attempt, len(manifest.parts))

    def _room(self, attempt: Attempt) -> str:
        return f"{self.prefix}/attempt-{attempt.generation}.{attempt.number}"


def check_name(name: str) -> str:
    """`name` if it can be part of a key, else a ManifestError."""
    if not _NAME.fullmatch(name):
        raise ManifestError(f"receiver {name!r}: expected letters, digits, '.', '_' and '-'")
    return name


def pack_answer(ok: bool, text: str) -> bytes:
    return json.dumps({"ok": ok, "text": text[:500]}).encode()


def parse_answer(raw: bytes) -> tuple[bool, str]:
    """(whether the receiver did its part, the fingerprint or the reason); ManifestError if malformed."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and set(found) == {"ok", "text"}:
        if type(found["ok"]) is bool and isinstance(found["text"], str):
            return found["ok"], found["text"]
    raise ManifestError(f"answer: {raw[:80]!r}, expected ok and text in JSON")


def _poll(look: Callable[[], Found | None], give_up: float) -> Found | None:
    """What `look` finds, asked again and again, ever less often, until it finds something or time is up."""
    pause = POLL
    while True:
        found = look()
        left = give_up - time.monotonic()
        if found is not None or left <= 0:
            return found
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_POLL)
