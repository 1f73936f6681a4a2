"""Tables over Who&When from what `reprise.labs.audit_whowhen` kept: baselines that read nothing, scorers, ranks."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from reprise.audit.attribution_scores import step_accuracy, step_hit, uniform_step_accuracy
from reprise.audit.turn_scores import first_crossing
from reprise.stats import paired_bootstrap, wilson_interval

SCORES = ("surprise", "p_yes")
LARGEST = 200  # logs of a set whose size is looked for


def kept(folder: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(logs, turns) as they were written."""
    folder = Path(folder)
    return pd.read_csv(folder / "whowhen_logs.csv"), pd.read_csv(folder / "whowhen_turns.csv")


def baselines(logs: pd.DataFrame) -> pd.DataFrame:
    """Answers that read no text: accuracy in percent by subset.

    Returns:
        columns subset, rule, agent, step, substring (the step under the released code's test); NaN where a rule has no
        answer. A uniform guess of the agent is drawn among speakers as the log writes them, recipients included.
    """
    rows = []
    for subset, part in logs.groupby("domain", sort=False):
        turns, steps = part.turns.tolist(), part.step.tolist()
        often = int(part.step.mode()[0])
        guesses = {
            "step 1": [1] * len(part),
            f"step {often}": [often] * len(part),
            "last turn": [n - 1 for n in turns],
            "step 10": [10] * len(part),
            "step 1234567890": ["1234567890"] * len(part),
        }
        uniform = [uniform_step_accuracy(turns, steps, compat) for compat in ("exact", "substring")]
        rows.append((subset, "uniform guess", (1 / part.raw_speakers).mean(), *uniform))
        for rule, predicted in guesses.items():
            scored = [step_accuracy(predicted, steps, compat) for compat in ("exact", "substring")]
            rows.append((subset, rule, np.nan, *scored))
        for rule in ("most_frequent", "most_frequent_any", "first_agent", "last_agent"):
            rows.append((subset, rule.replace("_", " "), part[rule].mean(), np.nan, np.nan))
    table = pd.DataFrame(rows, columns=["subset", "rule", "agent", "step", "substring"]).drop_duplicates()
    table[["agent", "step", "substring"]] *= 100
    return table.reset_index(drop=True)


def sizes(percentages: Sequence[str], slack: tuple[float, float] = (0.005, 0.01), least: int = 50) -> list[int]:
    """Numbers of logs of which every percentage can be a share.

    Args:
        percentages: as printed, with two digits.
        slack: points that a share may lie below and above the figure. The default allows a figure that was rounded and
            one that was cut; a difference of two such figures is off by less than (0.01, 0.01).
        least: smallest size tried; the largest is LARGEST.

    >>> sizes(["5.26", "3.51", "7.02", "8.77"])
    [57, 114, 171]
    """
    found = []
    for size in range(least, LARGEST + 1):
        shares = 100 * np.arange(size + 1) / size
        gaps = [shares - float(text) for text in percentages]
        if all(np.any((gap >= -slack[0] - 1e-9) & (gap <= slack[1] + 1e-9)) for gap in gaps):
            found.append(size)
    return found


def rank_of(scores: np.ndarray, step: int) -> float:
    """Share of a log's other turns that score below turn `step`, ties counted half: 1/2 for a score without meaning.

    >>> rank_of(np.array([1.0, 3.0, 2.0]), 1)
    1.0
    """
    below = (scores < scores[step]).sum() + 0.5 * ((scores == scores[step]).sum() - 1)
    return float(below / (len(scores) - 1))


def ranks(logs: pd.DataFrame, turns: pd.DataFrame) -> pd.DataFrame:
    """Where the decisive turn stands among its log's turns, for each score, and the control.

    Returns:
        columns id, domain, question, score, own, others. `others` is the mean rank of the turns that lie, in parts of
        the log, where the other logs of the subset have their errors: it keeps where errors lie and drops which turn
        it was.
    """
    rows, groups = [], _by_log(turns)
    for subset, part in logs[logs.id.isin(turns.id)].groupby("domain", sort=False):
        places = (part.step / part.turns).to_numpy()
        for at, log in enumerate(part.itertuples()):
            # a step of exactly half of a log must not fall below it by rounding
            steps = np.floor(np.delete(places, at) * log.turns + 1e-9).astype(int)
            for name in SCORES:
                values = groups[log.id][name].to_numpy()
                every = np.array([rank_of(values, k) for k in range(len(values))])
                rows.append((log.id, subset, log.question, name, every[log.step], every[steps].mean()))
    return pd.DataFrame(rows, columns=["id", "domain", "question", "score", "own", "others"])


def shuffled(turns: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The turns with each log's scores handed round among them."""
    rng = np.random.default_rng(seed)
    mixed = turns.copy()
    for at in turns.groupby("id", sort=False).indices.values():
        mixed.loc[turns.index[at], list(SCORES)] = turns[list(SCORES)].to_numpy()[rng.permutation(at)]
    return mixed


def interval(
    found: pd.DataFrame, column: str, against: str | float, draws: int, seed: int
) -> tuple[float, float, float]:
    """(mean, low, high) of the differences to another column, or to a number; whole questions are drawn again."""
    values = found[column].to_numpy()
    other = found[against].to_numpy() if isinstance(against, str) else np.full(len(values), against)
    return tuple(paired_bootstrap(values, other, n=draws, seed=seed, cluster=found.question))


def _by_log(turns: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return dict(iter(turns.sort_values("turn", kind="stable").groupby("id", sort=False)))


def halves(logs: pd.DataFrame, turns: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The generated logs of odd and of even number: thresholds are chosen on the first, shown on the second."""
    scored = logs[logs.id.isin(turns.id) & (logs.domain == "AG")]
    odd = scored.id.str.split("/").str[1].astype(int) % 2 == 1
    return scored[odd], scored[~odd]


def localisers(logs: pd.DataFrame, turns: pd.DataFrame) -> pd.DataFrame:
    """Exact step accuracy on the even generated logs of rules that read scores and of constants.

    A threshold, and the constant step, is the one that hits most on the odd logs, the smallest of equals.

    Returns:
        columns rule, hits, logs, accuracy, low, high (percent, Wilson 95 %), chosen.
    """
    design, shown = halves(logs, turns)
    groups = _by_log(turns)

    def hits(part: pd.DataFrame, rule: Callable, name: str, value: float) -> int:
        return sum(step_hit(rule(groups[log.id][name].to_numpy(), value), log.step) for log in part.itertuples())

    def shown_of(label: str, rule: Callable, name: str, levels: Sequence[float]) -> tuple[str, float, str]:
        level = max(levels, key=lambda value: (hits(design, rule, name, value), -value))
        return label.format(level), hits(shown, rule, name, level), f"{level:.3g}" if len(levels) > 1 else ""

    steps = range(int(design.turns.max()))
    rows = [shown_of("always step {}", lambda scores, step: step, "turn", steps)]
    rows.append(("uniform guess", float((1 / shown.turns).sum()), ""))
    for name in SCORES:
        rows.append(shown_of(f"largest {name}", lambda scores, _: int(scores.argmax()), name, [0]))
        levels = np.unique(np.quantile(turns[turns.id.isin(design.id)][name], np.linspace(0, 1, 41)))
        rows.append(shown_of(f"first {name} over a threshold", first_crossing, name, levels))
    table = pd.DataFrame(rows, columns=["rule", "hits", "chosen"])
    table["logs"] = len(shown)
    table["accuracy"] = 100 * table.hits / len(shown)
    ends = [wilson_interval(int(round(hit)), len(shown)) for hit in table.hits]
    table[["low", "high"]] = 100 * np.array(ends)
    return table


def stub_judge(seed: int = 0) -> Callable[[list[dict]], str]:
    """Answers drawn from the question's text and a seed, in a form that every protocol reads: a test, not a result."""

    def judge(messages: list[dict]) -> str:
        text = messages[-1]["content"]
        draw = random.Random(hashlib.sha256(f"{seed} {text}".encode()).hexdigest())
        shown = [line for line in text.splitlines() if line.startswith('{"turn": ')]
        answer = "Yes" if draw.random() < 0.2 else "No"
        half = draw.choice(["first half", "second half"])
        return f"{answer}. {half}\nAgent Name: nobody\nStep Number: {draw.randrange(len(shown))}\nReason: drawn"

    return judge
