"""Who&When: 184 failed runs with a human label of the decisive error, and what the data set alone tells.

The logs are public (github.com/ag2ai/Agents_Failure_Attribution, MIT) and are not part of this repository.
Source: Zhang et al., Which Agent Causes Task Failures and When?, ICML 2025.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.audit.errors import AuditError
from reprise.audit.logs import trajectory
from reprise.audit.trajectory import Trajectory, normalize_agent
from reprise.traces import Turn, read_log

# folder -> domain of its trajectories
SUBSETS = {"Algorithm-Generated": "AG", "Hand-Crafted": "HC"}
EXECUTORS = ("Computer_terminal",)  # run what agents wrote, and decide nothing
HOLDER = "Who&When"


def load_whowhen(folder: str | Path) -> list[Trajectory]:
    """The logs in numerical order, algorithm-generated ones first.

    Args:
        folder: with Algorithm-Generated and Hand-Crafted in it, or with a folder Who&When that has them.

    Returns:
        trajectories "AG/1" ... "HC/58", of domains "AG" and "HC"; the family is the question's id, which several logs
        share. Labels are kept as they are: of six logs the agent is not the speaker of the step.

    Raises:
        AuditError: a folder is missing or holds no log.  TraceError: a file is no log of Who&When.
    """
    root = Path(folder)
    if not (root / next(iter(SUBSETS))).is_dir() and (root / HOLDER).is_dir():
        root /= HOLDER
    loaded = []
    for name, domain in SUBSETS.items():
        files = [path for path in (root / name).glob("*.json") if path.stem.isdecimal()]
        if not files:
            raise AuditError(f"{root / name}: no log: expected the folder of Who&When with {' and '.join(SUBSETS)}")
        for path in sorted(files, key=lambda path: int(path.stem)):
            log = read_log(path, "who_and_when")
            loaded.append(trajectory(log, f"{domain}/{int(path.stem)}", domain))
    return loaded


def raw_speaker(turn: Turn) -> str:
    """The speaker as the log has it, with its recipient: "Orchestrator (-> WebSurfer)"."""
    return turn.raw.get("name") or turn.raw["role"]


@dataclass(frozen=True)
class Facts:
    """What is known of one log without its text, which is enough for every baseline that reads no text.

    Attributes:
        id, domain: of the trajectory.
        question: number of the log's question id, in the order of first appearance.
        turns, step: N and k*.
        speakers, raw_speakers: distinct ones, without and with recipients.
        label_speaks, label_spoke: whether the labelled agent speaks at k*, and anywhere.
        raw_label_spoke: the same as `label_spoke`, compared before recipients are taken off.
        most_frequent, most_frequent_any: whether the speaker with most turns is the labelled agent, executors left out
            and not; ties go to the first to speak.
        first_agent, last_agent: whether the first or last speaker is.
        characters: of all turns.
        replayed: characters read when every prefix is read anew, sum over k of |turns 0..k|.
    """

    id: str
    domain: str
    question: int
    turns: int
    step: int
    speakers: int
    raw_speakers: int
    label_speaks: bool
    label_spoke: bool
    raw_label_spoke: bool
    most_frequent: bool
    most_frequent_any: bool
    first_agent: bool
    last_agent: bool
    characters: int
    replayed: int


def facts(trajectories: Sequence[Trajectory]) -> list[Facts]:
    """Facts of labelled logs, in their order.

    Raises:
        AuditError: a log without a label.
    """
    questions: dict[str, int] = {}
    return [_facts(each, questions.setdefault(each.family, len(questions))) for each in trajectories]


def most_frequent_speaker(turns: Sequence[Turn], without: Collection[str] = EXECUTORS) -> str | None:
    """The speaker with most turns, the first to speak among equals; None when all are left out."""
    counts = Counter(turn.role for turn in turns if turn.role not in without)
    return max(counts, key=counts.__getitem__) if counts else None  # a Counter keeps the order of first appearance


def _facts(each: Trajectory, question: int) -> Facts:
    if each.decisive_step is None:
        raise AuditError(f"trajectory {each.id!r}: decisive_step=None: expected a labelled log")
    agent, lengths = each.decisive_agent, [len(turn.content) for turn in each.turns]
    return Facts(
        id=each.id,
        domain=each.domain,
        question=question,
        turns=len(each),
        step=each.decisive_step,
        speakers=len(each.roles),
        raw_speakers=len({raw_speaker(turn) for turn in each.turns}),
        label_speaks=each.turns[each.decisive_step].role == agent,
        label_spoke=agent in each.roles,
        raw_label_spoke=each.meta["mistake_agent"] in {raw_speaker(turn) for turn in each.turns},
        most_frequent=most_frequent_speaker(each.turns) == agent,
        most_frequent_any=most_frequent_speaker(each.turns, ()) == agent,
        first_agent=normalize_agent(each.turns[0].role) == agent,
        last_agent=each.turns[-1].role == agent,
        characters=sum(lengths),
        replayed=sum(length * (len(lengths) - k) for k, length in enumerate(lengths)),
    )
