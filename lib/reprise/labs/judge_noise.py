"""How wrong a small judge is: responses whose truth is known by construction, and what the judge says of them.

Each simple criterion has sentences that make it true, and no other criterion's sentence does (a test reads every
sentence). A response is some of these sentences among neutral ones, so that the truth of each criterion is known
without anybody's judgement.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprise.chat import LocalModel
from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.rubric.local_judge import ASK, NOTHING, LocalJudge


@dataclass(frozen=True)
class SimpleCriterion:
    """A statement about a response, and sentences each of which makes it true."""

    id: str
    statement: str
    sentences: tuple[str, ...]


SIMPLE = (
    SimpleCriterion(
        "apology",
        "The text contains an apology.",
        ("I am sorry for the delay.", "We apologise for the mistake.", "Please accept our apologies."),
    ),
    SimpleCriterion(
        "thanks",
        "The text thanks the reader.",
        ("Thank you for writing to us.", "Many thanks for your patience.", "We are grateful for your message."),
    ),
    SimpleCriterion(
        "question",
        "The text asks the reader a question.",
        ("Which colour do you prefer?", "Would Tuesday suit you?", "How large is the room?"),
    ),
    SimpleCriterion(
        "price",
        "The text states a price.",
        ("The chair costs 45 dollars.", "Each lamp is sold for 30 euros.", "The total comes to 120 dollars."),
    ),
    SimpleCriterion(
        "date",
        "The text gives a date.",
        ("The parcel left on 3 May.", "It was built on 14 October 1998.", "We open again on 2 January."),
    ),
    SimpleCriterion(
        "animal",
        "The text mentions an animal.",
        ("A cat slept beside the window.", "The horse waited at the gate.", "Two dogs ran across the yard."),
    ),
    SimpleCriterion(
        "weather",
        "The text describes the weather.",
        ("It rained all morning.", "The wind was cold and strong.", "The sky is clear and sunny."),
    ),
    SimpleCriterion(
        "doctor",
        "The text tells the reader to see a doctor.",
        ("You should see a doctor soon.", "Please visit a doctor this week.", "Ask your doctor to look at it."),
    ),
    SimpleCriterion(
        "phone",
        "The text gives a phone number.",
        ("Call us on 555 0147 at any time.", "Our number is 555 0182.", "You can phone 555 0113."),
    ),
    SimpleCriterion(
        "food",
        "The text mentions food.",
        ("She brought bread and cheese.", "There was soup for everybody.", "He ate an apple on the way."),
    ),
    SimpleCriterion(
        "city",
        "The text names a city.",
        ("The office is in Vienna.", "They moved to Lisbon.", "The train goes to Oslo."),
    ),
    SimpleCriterion(
        "warning",
        "The text warns of a danger.",
        ("Be careful, the step is slippery.", "Warning: the surface gets very hot.", "Danger: do not open the valve."),
    ),
)
NEUTRAL = (
    "The table stands in the middle of the hall.",
    "All parts are in the box.",
    "The second drawer holds the tools.",
    "Please keep this page.",
    "The work takes about an hour.",
    "Both doors can be locked.",
)
SHARE = 0.3  # of the criteria that hold of a response, our choice
NEUTRAL_SENTENCES = 2


class Judged(NamedTuple):
    """One criterion of one response: how it was asked, whether it holds, log odds before and after calibration."""

    ask: str
    response: int
    criterion: str
    truth: bool
    logit: float
    calibrated: float


@dataclass(frozen=True)
class Response:
    """A made text, and whether each criterion of SIMPLE holds of it."""

    text: str
    truth: tuple[bool, ...]


def make_responses(rng: np.random.Generator, count: int) -> list[Response]:
    """`count` responses, each criterion true with probability SHARE, sentences in random order."""
    made = []
    for _ in range(count):
        truth = rng.random(len(SIMPLE)) < SHARE
        sentences = [str(rng.choice(each.sentences)) for each, holds in zip(SIMPLE, truth, strict=True) if holds]
        sentences += rng.choice(NEUTRAL, NEUTRAL_SENTENCES, replace=False).tolist()
        made.append(Response(" ".join(rng.permutation(sentences)), tuple(truth.tolist())))
    return made


def holds(criterion: SimpleCriterion, text: str) -> bool:
    """Whether a made text has one of the criterion's sentences: the judge that makes no mistakes."""
    return any(sentence in text for sentence in criterion.sentences)


def measure(judge: LocalJudge, responses: Iterable[Response]) -> list[Judged]:
    """Ask the judge about every criterion of every response, and of the response without content."""
    lean = {each.id: judge.logit(NOTHING, each.statement) for each in SIMPLE}
    rows = []
    for k, response in enumerate(responses):
        for each, truth in zip(SIMPLE, response.truth, strict=True):
            said = judge.logit(response.text, each.statement)
            rows.append(Judged(judge.ask, k, each.id, truth, said, said - lean[each.id]))
    return rows


class Noise(NamedTuple):
    """What a judge's log odds do on one criterion, or on all of them.

    p = sigmoid(separation / 2 * (2 C - 1) + spread * N(0, 1) + bias) has the same first two moments, C being the
    truth: the noise model of the reinforcement-learning world, whose sharp judge has separation 4 and bias 0.

    Attributes:
        criterion: its id, or "all", where log odds of different criteria are compared with each other too.
        auc: chance that a response where it holds gets the higher log odds; .5 sees nothing.
        auc_error: its standard error (Hanley and McNeil, Radiology 143, 1982).
        hit, alarm: share of p >= .5 where it holds, and where it does not.
        separation, bias, spread: moments of the log odds, pooled over both truths.
    """

    criterion: str
    auc: float
    auc_error: float
    hit: float
    alarm: float
    separation: float
    bias: float
    spread: float


def noise(rows: Sequence[Judged], ask: str) -> list[Noise]:
    """One line for each criterion asked this way, in the order of SIMPLE, and a last one for all of them together."""
    found = []
    for id in [*(each.id for each in SIMPLE), "all"]:
        mine = [row for row in rows if row.ask == ask and id in (row.criterion, "all")]
        logits, truth = np.array([row.calibrated for row in mine]), np.array([row.truth for row in mine], bool)
        found.append(_noise(id, logits, truth))
    return found


def scores_by_truth(rows: Sequence[Judged], ask: str) -> dict[str, list[float]]:
    """Scores of criteria that hold ("met") and that do not ("unmet"), sorted: what a simulated judge can draw from."""
    mine = [row for row in rows if row.ask == ask]
    return {
        name: sorted(round(1 / (1 + math.exp(-row.calibrated)), 4) for row in mine if row.truth == truth)
        for name, truth in (("met", True), ("unmet", False))
    }


def _noise(id: str, logits: np.ndarray, truth: np.ndarray) -> Noise:
    true, false = logits[truth], logits[~truth]
    if not len(true) or not len(false):
        raise RepriseError(f"criterion {id}: {len(true)} true and {len(false)} false responses: expected both kinds")
    wins = (true[:, None] > false).mean() + (true[:, None] == false).mean() / 2
    # chances that two true ones beat one false one, and one true one two false ones, for exponential scores
    two_true, two_false = wins / (2 - wins), 2 * wins**2 / (1 + wins)
    variance = wins * (1 - wins) + (len(true) - 1) * (two_true - wins**2) + (len(false) - 1) * (two_false - wins**2)
    within = np.concatenate([true - true.mean(), false - false.mean()])
    return Noise(
        criterion=id,
        auc=float(wins),
        auc_error=float(np.sqrt(max(variance, 0.0) / (len(true) * len(false)))),
        hit=float((true >= 0).mean()),
        alarm=float((false >= 0).mean()),
        separation=float(true.mean() - false.mean()),
        bias=float((true.mean() + false.mean()) / 2),
        spread=float(within.std()),
    )


def write_csv(path: str | Path, rows: Sequence[Judged]) -> None:
    """Keep a measurement; log odds with four decimals, which is more than float32 weights repeat elsewhere."""
    lines = [",".join(Judged._fields)]
    lines += [f"{r.ask},{r.response},{r.criterion},{int(r.truth)},{r.logit:.4f},{r.calibrated:.4f}" for r in rows]
    atomic_write(path, ("\n".join(lines) + "\n").encode())


def read_csv(path: str | Path) -> list[Judged]:
    """A measurement that `write_csv` kept.

    Raises:
        RepriseError: other columns.  OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != Judged._fields:
            raise RepriseError(f"{path}: columns {reader.fieldnames}: expected {', '.join(Judged._fields)}")
        return [
            Judged(
                r["ask"],
                int(r["response"]),
                r["criterion"],
                r["truth"] == "1",
                float(r["logit"]),
                float(r["calibrated"]),
            )
            for r in reader
        ]


def main(csv_path: str, json_path: str, count: int = 32, seed: int = 100) -> None:
    """Measure the packaged model both ways on fresh responses and keep what it said.

    The form of the questions was chosen on seeds 9 and 10.
    """
    responses = make_responses(np.random.Generator(np.random.PCG64(seed)), count)
    model = LocalModel("smollm2-135m", device="cpu", threads=1)
    rows = [row for ask in ASK for row in measure(LocalJudge(model, ask=ask), responses)]
    write_csv(csv_path, rows)
    atomic_write(json_path, json.dumps(scores_by_truth(rows, "likelihood")).encode())


if __name__ == "__main__":
    main(*sys.argv[1:3])
