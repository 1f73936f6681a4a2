"""An auditor inside a running loop: one turn in, one verdict out, before the next turn is committed.

    auditor = OnlineAuditor(judge, on_alarm="raise", timeout=30)
    while turn := system.next_turn():
        auditor.observe(turn)                # or: await auditor.aobserve(turn)

The judge is asked once a turn. After the first alarm it is not asked again unless the loop repairs the run and says so
(`rewind`), or wants to hear more (`continue_after_alarm`). A judge that raises, takes too long or answers nonsense
costs a verdict, marked invalid with the error, and never the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from reprise.audit.errors import AuditError
from reprise.audit.online_state import Observed, read_state, write_state
from reprise.audit.prompt import build_messages
from reprise.audit.replay import Replay, visible
from reprise.audit.verdict import Verdict, invalid, parse_verdict
from reprise.traces import Turn

POLL_SECONDS = 0.002  # between two looks at a lock that a thread may hold, which an event loop must not wait for


class DecisiveErrorAlarm(Exception):
    """Stops the loop before the next turn: `verdict` names the turn and its speaker in `prefix`, the turns so far."""

    def __init__(self, verdict: Verdict, prefix: tuple[Turn, ...]):
        super().__init__(f"turn {verdict.step} ({verdict.agent or 'agent unknown'}): {verdict.reason or 'no reason'}")
        self.verdict, self.prefix = verdict, prefix


class JudgeFailed(AuditError):
    """The judge raised, took too long, or gave no verdict, and the auditor is strict about it."""


class OnlineAuditor:
    """Audits one run while it happens.

    Args:
        judge: called with `ask(turns 0..k)`; returns a response text or a `Verdict`. `aobserve` also takes a coroutine
            function, and calls another one in a thread.
        on_alarm: "record" returns the verdict and does nothing else; "raise" raises `DecisiveErrorAlarm`; a callable
            gets (verdict, turns so far), and what it raises reaches the loop.
        ask: makes the judge's argument from the turns, without their source records; None hands over the turns.
        lenient: of `parse_verdict`.
        timeout: seconds a call may take, None for no limit. The late call is not waited for, but goes on in its thread.
        continue_after_alarm: keep asking after an alarm.
        strict: raise `JudgeFailed`, once the turn is recorded, where a verdict would be invalid.

    Raises:
        AuditError: an on_alarm that is none of these, or a timeout that is not positive.

    One instance may be used from several threads and tasks; they are served one after another. Source: AgentForesight,
    online auditing: an alarm opens the window for intervention before turn k + 1 is committed.
    """

    def __init__(
        self,
        judge: Callable[[Any], str | Verdict | Awaitable[str | Verdict]],
        on_alarm: str | Callable[[Verdict, tuple[Turn, ...]], Any] = "record",
        *,
        ask: Callable[[Sequence[Turn]], Any] | None = build_messages,
        lenient: bool = False,
        timeout: float | None = None,
        continue_after_alarm: bool = False,
        strict: bool = False,
    ):
        if on_alarm not in ("record", "raise") and not callable(on_alarm):
            raise AuditError(f"on_alarm={on_alarm!r}: expected 'record', 'raise' or a callable")
        if timeout is not None and not timeout > 0:
            raise AuditError(f"timeout={timeout}: expected more than 0 seconds, or None")
        self._judge, self._ask, self._on_alarm = judge, ask, on_alarm
        self._lenient, self._timeout, self._strict = lenient, timeout, strict
        self._asks_on = continue_after_alarm
        self._asynchronous = inspect.iscoroutinefunction(judge) or inspect.iscoroutinefunction(
            getattr(judge, "__call__", None)  # noqa: B004, an instance whose __call__ is a coroutine function
        )
        self._lock, self._owner = threading.Lock(), None
        self._observed: list[Observed] = []
        self._rewinds: list[tuple[int, int]] = []

    def observe(self, turn: Turn) -> Verdict:
        """Record a turn and ask whether the run is still safe.

        Returns:
            the verdict; after an alarm that nobody repaired, that alarm again, without a query.

        Raises:
            AuditError: no Turn, a judge that needs `aobserve`, or a call from inside the judge; nothing is recorded.
            DecisiveErrorAlarm, JudgeFailed: as the instance was told to; the turn and its verdict are recorded.
        """
        if self._asynchronous:
            raise AuditError("judge is a coroutine function: expected `await aobserve(turn)`")
        _turn(turn)
        with self._serving():
            standing, prefix = self._begin(turn)
            if standing is None:
                answer = self._called(prefix)
                verdict = self._settle(answer, prefix)
        if standing is not None:
            return standing
        self._raise_failure(answer, verdict)
        if self._acts_on(verdict, prefix):
            self._on_alarm(verdict, prefix)
        return verdict

    async def aobserve(self, turn: Turn) -> Verdict:
        """`observe` for an event loop, which goes on while the judge thinks. An awaitable callback is awaited.

        A task cancelled while the judge thinks leaves the turn recorded and not judged.
        """
        _turn(turn)
        while not self._lock.acquire(blocking=False):
            await asyncio.sleep(POLL_SECONDS)
        self._owner = threading.get_ident()
        try:
            standing, prefix = self._begin(turn)
            if standing is None:
                answer = await self._awaited(prefix)
                verdict = self._settle(answer, prefix)
        finally:
            self._owner = None
            self._lock.release()
        if standing is not None:
            return standing
        self._raise_failure(answer, verdict)
        if self._acts_on(verdict, prefix) and inspect.isawaitable(made := self._on_alarm(verdict, prefix)):
            await made
        return verdict

    def rewind(self, turns: int) -> None:
        """Forget all but the first `turns` turns and the alarms after them: the loop is about to repair the run there.

        Raises:
            AuditError: not a number of turns in 0..observed.
        """
        with self._serving():
            if type(turns) is not int or not 0 <= turns <= len(self._observed):
                raise AuditError(f"turns={turns!r}: expected an int in 0..{len(self._observed)}")
            self._rewinds.append((len(self._observed), turns))
            del self._observed[turns:]

    @property
    def observed(self) -> tuple[Observed, ...]:
        """Turns of the run as it stands, with their verdicts."""
        return tuple(self._observed)

    @property
    def rewinds(self) -> tuple[tuple[int, int], ...]:
        """(turns observed, turns kept) of every rewind."""
        return tuple(self._rewinds)

    @property
    def alarm(self) -> tuple[int, Verdict] | None:
        """(turn after which it came, verdict) of the first alarm, or None."""
        alarms = ((k, each.verdict) for k, each in enumerate(self._observed) if each.verdict and each.verdict.is_alarm)
        return next(alarms, None)

    def result(self, id: str = "") -> Replay:
        """The run's verdicts in the form the metrics take: up to the first alarm."""
        detection, verdict = self.alarm or (None, Verdict())
        asked = self._observed if detection is None else self._observed[: detection + 1]
        verdicts = tuple(each.verdict for each in asked if each.verdict is not None)
        return Replay(id, verdicts, verdict.step, verdict.agent, detection)

    def state(self) -> dict[str, Any]:
        """What `resume` needs, as JSON values. Source records of turns are not kept."""
        return write_state(self._observed, self._rewinds)

    @classmethod
    def resume(cls, state: Mapping[str, Any], judge: Callable, *args: Any, **settings: Any) -> OnlineAuditor:
        """An auditor that goes on from a state; judge and settings are given again.

        Raises:
            AuditError: the state is not one that `state` wrote; the message names the field.
        """
        auditor = cls(judge, *args, **settings)
        auditor._observed, auditor._rewinds = read_state(state)
        return auditor

    @contextmanager
    def _serving(self):
        if self._owner == threading.get_ident():
            raise AuditError(
                "called while the judge is being asked, from its own thread: expected a call between turns"
            )
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    def _begin(self, turn: Turn) -> tuple[Verdict | None, tuple[Turn, ...]]:
        """Record the turn; (alarm that stands and forbids a query, turns so far)."""
        standing = None if self._asks_on or self.alarm is None else self.alarm[1]
        self._observed.append(Observed(turn, None))
        return standing, tuple(each.turn for each in self._observed)

    def _question(self, prefix: tuple[Turn, ...]) -> Any:
        return visible(prefix) if self._ask is None else self._ask(visible(prefix))

    def _called(self, prefix: tuple[Turn, ...]) -> Any:
        """The judge's answer, or the exception it ended with."""
        try:
            question = self._question(prefix)
            if self._timeout is None:
                return self._judge(question)
            return _started(self._judge, question).result(self._timeout)
        except TimeoutError as error:
            return self._late(error)
        except Exception as error:
            return error

    async def _awaited(self, prefix: tuple[Turn, ...]) -> Any:
        try:
            question = self._question(prefix)
            if self._asynchronous:
                call = self._judge(question)
            else:
                call = asyncio.wrap_future(_started(self._judge, question))
            return await asyncio.wait_for(call, self._timeout)
        except TimeoutError as error:
            return self._late(error)
        except Exception as error:
            return error

    def _late(self, error: TimeoutError) -> TimeoutError:
        """The same error; the two kinds of waiting give none of them a text."""
        return error if str(error) else TimeoutError(f"no answer within {self._timeout} s")

    def _settle(self, answer: Any, prefix: tuple[Turn, ...]) -> Verdict:
        """The verdict that is recorded for the last turn."""
        last = len(prefix) - 1
        if inspect.iscoroutine(answer):
            answer.close()
        if isinstance(answer, Exception):
            verdict = invalid(f"{type(answer).__name__}: {answer}")
        elif isinstance(answer, str):
            verdict = parse_verdict(answer, last, {turn.role for turn in prefix}, self._lenient)
        elif not isinstance(answer, Verdict):
            verdict = invalid(f"judge returned {type(answer).__name__}: expected a text or a Verdict")
        elif answer.is_alarm and answer.step > last:
            verdict = invalid(f"step={answer.step}: expected a turn in 0..{last}, which the judge has seen")
        else:
            verdict = answer
        self._observed[last] = Observed(prefix[last], verdict)
        return verdict

    def _raise_failure(self, answer: Any, verdict: Verdict) -> None:
        if self._strict and not verdict.valid:
            raise JudgeFailed(verdict.error) from (answer if isinstance(answer, Exception) else None)

    def _acts_on(self, verdict: Verdict, prefix: tuple[Turn, ...]) -> bool:
        """Whether there is a callback to call; raises the alarm where it is to be raised."""
        if verdict.is_alarm and self._on_alarm == "raise":
            raise DecisiveErrorAlarm(verdict, prefix)
        return verdict.is_alarm and callable(self._on_alarm)


def _started(judge: Callable[[Any], Any], question: Any) -> Future:
    """The judge's answer to come, from a thread that ends with the process: one that hangs must hold nothing up."""
    future: Future = Future()
    future.set_running_or_notify_cancel()

    def call():
        try:
            future.set_result(judge(question))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="reprise-judge", daemon=True).start()
    return future


def _turn(turn: Any) -> None:
    if not isinstance(turn, Turn):
        raise AuditError(f"turn of type {type(turn).__name__}: expected a Turn")
