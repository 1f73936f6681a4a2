"""A manager asks a search agent for one fact at a time; the answer is the last entity of the chain.

    user ask "start ada then mentor , rival" · Manager delegate "mentor of ada" ·
    search_tool doc "mentor of ada is boris" · search_agent report "boris" · Manager delegate "rival of boris" · ... ·
    Manager final "answer jonas"

The agent slips with probability `p_slip`: it reports another entity than the two of the document. The manager
compares report and document with probability `p_check` and sends a wrong one back. Nothing is injected here; failures
come about by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reprise.audit.environment import Task
from reprise.labs.agent_runs.chances import check_chances
from reprise.traces import Turn

MANAGER, AGENT, TOOL = "Manager", "search_agent", "search_tool"
ENTITIES = tuple(
    "ada boris cleo doris emil fatma goran hana iris jonas kira leon mona nils olga pavel qadir rosa sven tara "
    "ugo vera wim zoe".split()
)
# relation -> (a, b): entity i stands in it to entity (a i + b) mod 24; none to itself, since gcd(a - 1, 24) never
# divides b, and no two to the same one, since a and 24 share no factor
RELATIONS = {"mentor": (5, 1), "rival": (7, 2), "editor": (11, 3), "tenant": (13, 5), "cousin": (17, 9)}
ACTIONS = {"user": {"ask"}, MANAGER: {"delegate", "final"}, TOOL: {"doc", "tool_error"}, AGENT: {"report"}}


@dataclass(frozen=True)
class State:
    """What the transcript says: hops settled, the entity reached, and the step the current hop is at."""

    done: int
    entity: str
    asked: bool = False
    found: str | None = None  # what the document says
    reported: str | None = None
    ended: bool = False


@dataclass(frozen=True)
class SearchEnv:
    """The system, with its chances: of a wrong report, of the manager comparing it, of a search that fails."""

    p_slip: float = 0.35
    p_check: float = 0.35
    p_tool_error: float = 0.02

    domain = "search"

    def __post_init__(self):
        check_chances(self)

    def draw_task(self, rng: np.random.Generator) -> Task:
        """A start and two to four relations to follow."""
        names = sorted(RELATIONS)
        hops = [names[int(i)] for i in rng.integers(len(names), size=int(rng.integers(2, 5)))]
        return {"domain": self.domain, "start": ENTITIES[int(rng.integers(len(ENTITIES)))], "hops": hops}

    def next_turn(self, task: Task, turns: tuple[Turn, ...], rng: np.random.Generator) -> Turn | None:
        if not turns:
            return ask(task)
        now = state(task, turns)
        if now.ended:
            return None
        if now.reported is not None:
            if now.reported != now.found and rng.random() < self.p_check:
                return Turn(MANAGER, "delegate", question(task, now))
            now = State(now.done + 1, now.reported)
        if now.done == len(task["hops"]):
            return Turn(MANAGER, "final", f"answer {now.entity}")
        if not now.asked:
            return Turn(MANAGER, "delegate", question(task, now))
        if now.found is None:
            if rng.random() < self.p_tool_error:
                return Turn(TOOL, "tool_error", "search error")
            return Turn(TOOL, "doc", document(task, now))
        return Turn(AGENT, "report", self._report(now, rng))

    def _report(self, now: State, rng: np.random.Generator) -> str:
        if rng.random() >= self.p_slip:
            return now.found
        # with the entity asked about, the next question could read like this one sent back
        others = [name for name in ENTITIES if name not in (now.found, now.entity)]
        return others[int(rng.integers(len(others)))]

    def omega(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether the run ended with the entity that the whole chain leads to."""
        return bool(turns) and turns[-1].action == "final" and turns[-1].content == f"answer {gold(task)}"

    def locally_wrong(self, task: Task, turns: tuple[Turn, ...], k: int) -> bool:
        turn = turns[k]
        if turn.action in ("ask", "tool_error"):
            return False
        now = state(task, turns[:k])
        if turn.role == AGENT:
            return turn.content != now.found
        if turn.role == TOOL:
            return turn.content != document(task, now)
        if now.reported is not None and turn.content == question(task, now):
            return now.reported == now.found  # sent back: right only if the report was wrong
        if now.reported is not None:
            now = State(now.done + 1, now.reported)
        if turn.action == "final":
            return now.done < len(task["hops"]) or turn.content != f"answer {now.entity}"
        return now.done == len(task["hops"]) or turn.content != question(task, now)

    def on_track(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether nothing in the transcript stands that a right run would not have."""
        now = state(task, turns)
        if now.ended:
            return self.omega(task, turns)
        entity = task["start"]
        for relation in task["hops"][: now.done]:
            entity = follow(entity, relation)
        return now.entity == entity and now.reported in (None, now.found)

    def fix(self, task: Task, turns: tuple[Turn, ...], k: int, rng: np.random.Generator) -> Turn | None:
        """What the system does at k without slips or failing tools, its manager comparing every report."""
        return replace(self, p_slip=0.0, p_check=1.0, p_tool_error=0.0).next_turn(task, turns[:k], rng)

    def legal(self, turn: Turn) -> bool:
        return turn.action in ACTIONS.get(turn.role, ())

    def tool_error(self, turn: Turn) -> bool:
        return turn.action == "tool_error"


def ask(task: Task) -> Turn:
    """The task message."""
    return Turn("user", "ask", f"start {task['start']} then {' , '.join(task['hops'])}")


def follow(entity: str, relation: str) -> str:
    """The entity that stands in `relation` to `entity`."""
    a, b = RELATIONS[relation]
    return ENTITIES[(a * ENTITIES.index(entity) + b) % len(ENTITIES)]


def gold(task: Task) -> str:
    """The task's right answer."""
    entity = task["start"]
    for relation in task["hops"]:
        entity = follow(entity, relation)
    return entity


def question(task: Task, now: State) -> str:
    """The fact the current hop asks for."""
    return f"{task['hops'][now.done]} of {now.entity}"


def document(task: Task, now: State) -> str:
    """What the search returns for it."""
    return f"{question(task, now)} is {follow(now.entity, task['hops'][now.done])}"


def state(task: Task, turns: tuple[Turn, ...]) -> State:
    """Read the transcript."""
    now = State(0, task["start"])
    for turn in turns:
        if turn.action == "delegate":
            if now.reported is not None and turn.content != question(task, now):
                now = State(now.done + 1, now.reported)
            now = State(now.done, now.entity, asked=True)
        elif turn.action == "doc":
            now = replace(now, found=turn.content.rsplit(" is ", 1)[-1])
        elif turn.action == "report":
            now = replace(now, reported=turn.content)
        elif turn.action == "final":
            now = replace(now, ended=True)
    return now
