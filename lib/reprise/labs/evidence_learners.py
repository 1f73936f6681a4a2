"""Agents that learn when to look: what a reward pays for decides how their episodes fail.

One action needs K facts, each bad with probability v. Reading a fact costs c. Acting pays 1 when all facts are good and
-L otherwise; stopping pays s when some fact is bad and 0 otherwise. The outcome alone is paid for, not the looking:

    p      = (1 - v)^K
    act    : p - L (1 - p)                        acting at once
    stop   : s (1 - p)                            stopping at once
    read   : p + s (1 - p) - c (1 - p) / v        reading until the first bad fact

Tabular learners know nothing of these formulas. They are trained on the sampled problem, and their policies are then
played in the real environment and judged by the evaluator.

Source: ours; the paper reports the two failure modes (premature action, stopping before the investigation is complete).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from reprise.evidence.evaluate import Verdict, evaluate
from reprise.evidence.model import Case, Protocol
from reprise.labs.evidence_agents import Watcher
from reprise.labs.evidence_suite.reference import Player


class Move(IntEnum):
    READ = 0
    ACT = 1
    STOP = 2


@dataclass(frozen=True)
class Problem:
    """Number of facts, chance that one is bad, cost of a read, loss of a forbidden action, pay for a right stop."""

    facts: int
    bad: float
    cost: float
    loss: float
    stop: float = 0.5

    @property
    def values(self) -> dict[str, float]:
        """Expected reward of the three pure strategies."""
        good = (1 - self.bad) ** self.facts
        return {
            "act": good - self.loss * (1 - good),
            "stop": self.stop * (1 - good),
            "read": good + self.stop * (1 - good) - self.cost * (1 - good) / self.bad,
        }

    @property
    def best(self) -> str:
        return max(self.values, key=self.values.get)

    @property
    def critical_cost(self) -> float:
        """The cost of a read at which reading is as good as the better of acting and stopping at once."""
        good = (1 - self.bad) ** self.facts
        gain = good + self.stop * (1 - good) - max(self.values["act"], self.values["stop"])
        return gain * self.bad / (1 - good)

    @property
    def other_side(self) -> Problem:
        """The problem with the cost mirrored at the critical one, on a logarithmic scale."""
        return replace(self, cost=self.critical_cost**2 / self.cost)

    @property
    def margin(self) -> float:
        """Distance between the best strategy and the next."""
        first, second, _ = sorted(self.values.values(), reverse=True)
        return first - second


def train(problem: Problem, seed: int, episodes: int = 30_000, batch: int = 200) -> np.ndarray:
    """Q values of shape (facts + 1, 2, 3): facts read so far, whether a bad one was seen, move.

    Q-learning without discount, step size 1 / visits^0.7, exploring each move with a probability that falls from 1 to
    .05. As many episodes start with some of the reads made, because moves at random hardly ever read to the end.
    Episodes run in batches; all of a batch act on the values before it.
    """
    rng = np.random.default_rng(seed)
    shape = (problem.facts + 1, 2, 3)
    q, visits = np.zeros(shape), np.zeros(shape)
    rounds = episodes // batch
    for round_ in range(rounds):
        explore = max(0.05, 1 - 2 * round_ / rounds)
        bad = rng.random((batch, problem.facts)) < problem.bad
        _batch(problem, q, visits, bad, explore, rng)
    return q


def _batch(problem: Problem, q, visits, bad, explore: float, rng: np.random.Generator) -> None:
    start = np.where(rng.random(len(bad)) < explore, rng.integers(0, problem.facts + 1, len(bad)), 0)
    over, seen, any_bad = np.zeros(len(bad), bool), np.zeros(len(bad), int), bad.any(axis=1)
    for read in range(problem.facts + 1):
        alive = ~over & (start <= read)
        moves = np.where(read == problem.facts, q[read, :, 1:].argmax(1)[seen] + 1, q[read].argmax(1)[seen])
        random = rng.integers(1 if read == problem.facts else 0, 3, len(bad))
        moves = np.where(rng.random(len(bad)) < explore, random, moves)
        pay = np.where(
            moves == Move.ACT,
            np.where(any_bad, -problem.loss, 1.0),
            np.where(moves == Move.STOP, np.where(any_bad, problem.stop, 0.0), -problem.cost),
        )
        if read < problem.facts:
            after = seen | bad[:, read]
            low = 1 if read + 1 == problem.facts else 0
            pay = pay + np.where(moves == Move.READ, q[read + 1, :, low:].max(1)[after], 0.0)
        where = (np.full(alive.sum(), read), seen[alive], moves[alive])
        total, count = np.zeros(q.shape), np.zeros(q.shape)
        np.add.at(total, where, pay[alive])
        np.add.at(count, where, 1)
        visits += count
        hit = count > 0
        # a batch of n samples counts as n updates with the step size of the last
        rate = 1 - (1 - visits[hit] ** -0.7) ** count[hit]
        q[hit] += rate * (total[hit] / count[hit] - q[hit])
        over |= alive & (moves != Move.READ)
        if read < problem.facts:
            seen = after


def strategy(q: np.ndarray) -> str:
    """Which pure strategy the greedy policy follows: "act", "stop", "read" until the first bad fact, or "other"."""
    first = Move(q[0, 0].argmax())
    if first is not Move.READ:
        return first.name.lower()
    facts = len(q) - 1
    goes_on = all(q[k, 0].argmax() == Move.READ for k in range(facts)) and q[facts, 0, 1] >= q[facts, 0, 2]
    ends = all(q[k, 1, 1:].argmax() + 1 == Move.STOP and q[k, 1].argmax() != Move.READ for k in range(1, facts))
    return "read" if goes_on and ends else "other"


def play_policy(case: Case, policies: dict[int, np.ndarray], seed: int) -> Verdict:
    """One episode of a learnt policy in the real environment, judged by the evaluator.

    The facts are the requirements of the case, read in a random order; whether one is bad is taken from what the
    responses show beside the tools' documentation. `policies` maps a number of facts to its Q values.
    """
    q = policies[len(_facts(case))]
    return _episode(case, np.random.default_rng([seed, case.hidden.seed]), lambda read, seen: q[read, seen])[0]


def _facts(case: Case) -> tuple[str, ...]:
    return case.hidden.investigate or case.hidden.actions[0].requires


def _episode(case: Case, rng: np.random.Generator, values, start: int | None = None):
    """A verdict and the (facts left, bad seen, move) of each choice; the first `start` reads are no choices, the move
    after them is drawn."""
    player, names = Player(case), _facts(case)
    watcher, seen, chosen = Watcher(player), 0, []
    for read, name in enumerate([*rng.permutation(names), None]):
        low = 0 if name else 1
        if read >= (start or 0):
            move = Move(values(read, seen)[low:].argmax() + low)
            if read == start:
                move = Move(rng.integers(low, 3))
            chosen.append((len(names) - read, seen, move))
            if move is Move.ACT:
                attempt(player)
            if move is not Move.READ:
                break
        player.read(case.requirement[name])
        seen |= watcher.objects()
    return evaluate(case, player.environment.finish()), chosen


def train_on_cases(
    cases: Sequence[Case], reward: Callable[[Verdict], float], cost: float, seed: int, episodes: int = 4000
) -> dict[int, np.ndarray]:
    """A tabular learner on the cases themselves, paid `reward` of the verdict less `cost` a read.

    One table for all cases, over facts left, whether a bad one was seen, and move. Monte Carlo with exploring starts:
    an episode starts after a random number of reads with a random move and is greedy from there on; values start high,
    step size 1 / visits^0.7. Returns Q values as `play_policy` takes them.
    """
    rng = np.random.default_rng(seed)
    most = max(len(_facts(case)) for case in cases)
    q, visits = np.ones((most + 1, 2, 3)), np.zeros((most + 1, 2, 3))
    for _ in range(episodes):
        case = cases[rng.integers(len(cases))]
        facts = len(_facts(case))
        start = int(rng.integers(0, facts + 1))
        verdict, chosen = _episode(case, rng, lambda read, seen, n=facts: q[n - read, seen], start)
        pay = reward(verdict)
        for place in reversed(chosen):
            pay -= cost if place[2] is Move.READ else 0.0
            visits[place] += 1
            q[place] += visits[place] ** -0.7 * (pay - q[place])
    return {facts: q[facts::-1] for facts in range(1, most + 1)}


def ecs_pay(verdict: Verdict) -> float:
    """1 for an episode without a code."""
    return float(verdict.ecs)


def outcome_pay(verdict: Verdict, loss: float = 1.0, stop: float = 0.5) -> float:
    """What happened alone: 1 for a permitted action, -loss for a forbidden one, `stop` for not acting rightly."""
    if verdict.protocol is Protocol.V0:
        return -loss if verdict.attempted else stop
    return 1.0 if any(point.executed for point in verdict.checkpoints) else 0.0


def bsr_of_first_bad(cases: Sequence[Case]) -> float:
    """The BSR, in percent, of reading until the first bad fact in a random order: 1 - 1/K, where a conflict shows only
    once both of its records have been read 1 - 2/K."""
    stopped = [case for case in cases if case.view.protocol is Protocol.V0]
    return 100 * float(np.mean([1 - (1 + (c.hidden.reason == "conflicting")) / len(_facts(c)) for c in stopped]))


def attempt(player: Player) -> None:
    """The case's action, with what was seen; in a case without one, its state-changing tool on the task's record."""
    case = player.case
    if case.hidden.actions:
        player.refresh(case.hidden.actions[0].requires)
        player.act(case.hidden.actions[0])
        return
    tool = next(tool for tool in case.view.tools if tool.kind == "consequential")
    parameter = next(iter(tool.params))
    target = next(e for e, record in case.hidden.world.items() if record["kind"] == parameter.removesuffix("_id"))
    player.call(tool.name, **{parameter: target, "value": "1"})


def grid(facts: int, bads: Sequence[float], costs: Sequence[float], loss: float = 1.0) -> list[Problem]:
    """Problems over two axes, without those whose two best strategies are closer than .05."""
    problems = [Problem(facts, bad, cost, loss) for bad in bads for cost in costs]
    return [problem for problem in problems if problem.margin >= 0.05]
