"""What both transports share: their errors, tries of what may fail for a moment, and work of bounded depth."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from reprise.errors import RepriseError

Item = TypeVar("Item")
Result = TypeVar("Result")

TRIES = 3
FIRST_PAUSE = 0.1  # seconds before the second try, doubled before each later one


class TransportError(RepriseError):
    """A transfer failed; the attempt is over, and a new one starts from the same bits."""


class TransportTimeout(TransportError):
    """The other side did not answer, or did not move, within its time."""


class ReceiverFailed(TransportError):
    """A receiver refused or could not do its part; `receiver` names it."""

    def __init__(self, receiver, reason: str):
        super().__init__(f"receiver {receiver}: {reason}")
        self.receiver = receiver


class UnreachableError(TransportError):
    """A store did not do what it was asked, whatever the reason; another try may succeed."""


class ManifestError(TransportError):
    """A manifest that is malformed, belongs to something else or contradicts the parts it lists."""


def tried(call: Callable[[], Result], tries: int = TRIES) -> Result:
    """The result of `call`, called again after an UnreachableError until it was called `tries` times."""
    for remaining in reversed(range(tries)):
        try:
            return call()
        except UnreachableError:
            if not remaining:
                raise
        time.sleep(FIRST_PAUSE * 2 ** (tries - 1 - remaining))
    raise UnreachableError(f"tries={tries}: expected at least 1")


def bounded_map(call: Callable[[Item], Result], items: Iterable[Item], window: int) -> Iterator[Result]:
    """Results of `call`, in order of `items`, with at most `window` of them under way or not yet taken.

    The next item is taken from `items`, and so made, only when there is room: a slow `call` or a slow consumer holds
    the producer back. An error of `call` or of `items` ends everything; calls under way are waited for.
    """
    if window < 1:
        raise TransportError(f"window={window}: expected at least 1")
    pending, source = deque(), iter(items)
    with ThreadPoolExecutor(window) as pool:
        try:
            while True:
                if len(pending) == window:
                    yield pending.popleft().result()
                try:
                    item = next(source)
                except StopIteration:
                    break
                pending.append(pool.submit(call, item))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
