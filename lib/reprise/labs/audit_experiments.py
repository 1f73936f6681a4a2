"""The arms that are compared, what is measured of each, and how two are compared.

Every arm starts from the same base. Learning rates and the anchor's weight were chosen on validation families of design
corpora (`SEARCH`, measured once: `python -m reprise.labs.audit_experiments CSV`), for every arm from the same grid; the
arms of one stage get as many steps as both stages have together.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from reprise.audit.boundary_pairs import Side
from reprise.audit.metrics import AuditRecord, audit_metrics
from reprise.audit.trajectory import Trajectory
from reprise.durable import atomic_write
from reprise.labs.audit_baselines import baselines, summary
from reprise.labs.audit_model import load
from reprise.labs.audit_training import DESIGN_SEEDS, Arm, Auditor, Parts, corpus_parts, sample_pairs, train_arm
from reprise.stats import resampled_sums

TASKS = 200  # of each domain in a corpus
STEPS1, STEPS2 = 120, 120
GRID = (3e-4, 1e-3, 3e-3)
BEYOND = {"SFT": 1e-2, "GRPO": 1e-4}  # tried where the best of the grid stood at its end
ANCHORS = (0.0, 0.25)
# anchor, lr1, lr2 of a stage 1 that leaves more to stage 2, tried because most of stage 2's groups were dead
WEAKER = ((0.05, 1e-3, 1e-3), (0.1, 3e-4, 1e-3), (0.25, 3e-4, 3e-3))

BPPO = Arm("BPPO", "bppo", STEPS1, 1e-3, 0.25)
GRPO = Arm("GRPO", steps2=STEPS2, lr2=3e-4)
SECOND_LR = 1e-3  # of stage 2 behind stage 1
SFT = Arm("SFT", "sft", STEPS1, 3e-3)
BOTH = "BPPO then GRPO"
ONE_STAGE = ("BPPO", "BPPO, equal time", "GRPO")  # what two stages have to beat
LONGER = 3.5  # steps of stage 1 alone that take about as long as both stages


def chosen_arms(steps1: int = STEPS1, steps2: int = STEPS2) -> dict[str, Arm]:
    """The arms of the comparison under the settings that were chosen.

    Args:
        steps1, steps2: of the two stages; an arm of one stage gets their sum.
    """
    total = steps1 + steps2
    bppo, grpo, sft = replace(BPPO, steps1=total), replace(GRPO, steps2=total), replace(SFT, steps1=total)
    both = replace(BPPO, name=BOTH, steps1=steps1, steps2=steps2, lr2=SECOND_LR)
    arms = [
        both,
        bppo,
        replace(bppo, name="BPPO, equal time", steps1=round(LONGER * total)),
        grpo,
        replace(grpo, name="GRPO, 70 % Safe", p_safe=0.7),
        sft,
        replace(sft, name="SFT then GRPO", steps1=steps1, steps2=steps2, lr2=SECOND_LR),
        replace(bppo, name="BPPO, no anchor", anchor=0.0),
        replace(bppo, name="BE only", stage1="BE"),
        replace(bppo, name="BS only", stage1="BS"),
        replace(bppo, name="BE only, sides dealt", stage1="BE", shuffled=True),
        replace(bppo, name="BS only, sides dealt", stage1="BS", shuffled=True),
        replace(both, name="BPPO then GRPO, permuted", permuted=True),
        replace(bppo, name="BPPO, permuted", permuted=True),
        replace(grpo, name="GRPO, permuted", permuted=True),
    ]
    return {arm.name: arm for arm in arms}


@dataclass(frozen=True)
class Result:
    """One arm on one corpus.

    Attributes:
        seed, arm: which.
        records: strict replay of the evaluated runs.
        before, at_error: P(alarm) of each failure at turns k*-1 and k*, means over failures with k* > 0.
        curves, pairs: of its training.
        seconds: CPU seconds of training, and of evaluation.
    """

    seed: int
    arm: str
    records: Sequence[AuditRecord]
    before: float = float("nan")
    at_error: float = float("nan")
    curves: Mapping[str, list[dict]] = field(default_factory=dict)
    pairs: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[float, float] = (0.0, 0.0)


def run_arm(base: Path, parts: Parts, arm: Arm, seed: int, evaluate_on: str = "test", shared=None) -> Result:
    """Train one arm and replay it on the runs of `evaluate_on`; a process of its own may call it.

    `shared` are boundary pairs from `sample_pairs`.
    """
    torch.set_num_threads(1)
    begin = time.process_time()
    trained = train_arm(load(base), parts.train, arm, seed, shared)
    middle = time.process_time()
    runs, auditor = getattr(parts, evaluate_on), Auditor(trained.model.eval())
    records = auditor.records(runs)
    before, at_error = boundary_alarms(auditor, runs)
    seconds = (middle - begin, time.process_time() - middle)
    return Result(seed, arm.name, records, before, at_error, trained.curves, trained.pairs, seconds)


def run_all(
    base: Path, parts: Mapping[int, Parts], arms: Iterable[Arm], processes: int = 1, evaluate_on: str = "test"
) -> list[Result]:
    """Every arm on every corpus, arm by arm, in processes of one thread each."""
    arms = list(arms)
    paired = any(arm.stage1 in ("bppo", *Side) for arm in arms)
    shared = {seed: sample_pairs(load(base), parts[seed].train, seed) if paired else None for seed in parts}
    jobs = [(base, parts[seed], arm, seed, evaluate_on, shared[seed]) for arm in arms for seed in parts]
    if processes == 1:
        return [run_arm(*job) for job in jobs]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_arm, *zip(*jobs, strict=True)))


def run_baselines(base: Path, parts: Mapping[int, Parts]) -> list[Result]:
    """The auditors without labels, thresholds from training families; and the untrained base."""
    model, found = load(base).eval(), []
    for seed, each in parts.items():
        found += [Result(seed, name, records) for name, records in baselines(model, each.train, each.test).items()]
        before, at_error = boundary_alarms(Auditor(model), each.test)
        found.append(Result(seed, "base", Auditor(model).records(each.test), before, at_error))
    return found


def boundary_alarms(auditor: Auditor, runs: Sequence[Trajectory]) -> tuple[float, float]:
    """Mean P(alarm) on both sides of the errors of `runs`: after turn k*-1 and after turn k*."""
    failures = [run for run in runs if run.decisive_step]
    odds = auditor.log_odds(failures)
    sides = [[row[run.decisive_step - 1], row[run.decisive_step]] for run, row in zip(failures, odds, strict=True)]
    before, at_error = (1 / (1 + np.exp(-np.array(sides)))).mean(0)
    return float(before), float(at_error)


def pooled(results: Iterable[Result], arm: str) -> list[AuditRecord]:
    """The records of an arm on all corpora, ids and families named by the corpus."""
    return [
        replace(each, id=f"{result.seed}/{each.id}", family=f"{result.seed}/{each.family}")
        for result in results
        if result.arm == arm
        for each in result.records
    ]


def f1_difference(ours: Sequence[AuditRecord], theirs: Sequence[AuditRecord], draws: int = 2000, seed: int = 0):
    """F1 (table convention) of one auditor less that of another on the same runs, in points.

    Returns:
        difference, and the ends of its 95 % percentile interval over resampled families.
    """
    families: dict[str, list[int]] = {}
    for a, b in zip(ours, theirs, strict=True):
        sums = families.setdefault(a.family, [0, 0, 0, 0])
        for at, each in ((0, a), (2, b)):
            hit = each.gt_step is not None and each.gt_step == each.pred_step
            sums[at] += 2 * hit
            sums[at + 1] += (each.gt_step is not None) + (each.pred_step is not None)
    table = np.array(list(families.values()), float)

    def difference(sums):
        return 100 * (sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3])

    low, high = np.quantile(difference(resampled_sums(table, draws, seed)), [0.025, 0.975])
    return float(difference(table.sum(0))), float(low), float(high)


def table(results: Iterable[Result]) -> list[dict]:
    """One row an arm and corpus: the figures of `summary`, P(alarm) at both sides, CPU seconds of training."""
    return [
        {"arm": r.arm, "seed": r.seed, **summary(r.records), "before": r.before, "at error": r.at_error}
        | {"seconds": r.seconds[0]}
        for r in results
    ]


def scores(results: Sequence[Result], draws: int = 2000) -> list[dict]:
    """F1 (table convention) and false-alarm rate of each arm over all corpora, with intervals over families."""
    found = []
    for name in dict.fromkeys(result.arm for result in results):
        m = audit_metrics(pooled(results, name), by=None, ci=draws)
        row = {"arm": name}
        for short, metric in (("F1", "exact_f1_table"), ("FAR", "far")):
            low, high = m.intervals.get(metric, (float("nan"),) * 2)
            names = ("low", "high") if short == "F1" else ("far_low", "far_high")
            row |= {short: getattr(m, metric), **dict(zip(names, (low, high), strict=True))}
        found.append(row)
    return found


def domain_scores(results: Sequence[Result]) -> list[dict]:
    """F1 (table convention) and false-alarm rate of each arm in each domain, over all corpora."""
    return [
        {"arm": name, "domain": domain, "F1": m.exact_f1_table, "FAR": m.far}
        for name in dict.fromkeys(result.arm for result in results)
        for domain, m in audit_metrics(pooled(results, name)).by.items()
    ]


# -- the choice of settings --------------------------------------------------------------------------------------------


def search_arms() -> list[Arm]:
    """Every setting that was run before the comparison."""
    total = STEPS1 + STEPS2
    found = [replace(BPPO, steps1=total, lr1=lr, anchor=a) for a in ANCHORS for lr in GRID]
    found += [replace(SFT, steps1=total, lr1=lr) for lr in (*GRID, BEYOND["SFT"])]
    found += [replace(GRPO, steps2=total, lr2=lr) for lr in (BEYOND["GRPO"], *GRID)]
    found += [replace(BPPO, name=BOTH, steps2=STEPS2, lr2=lr) for lr in GRID]
    found += [replace(BPPO, name=BOTH, steps2=STEPS2, lr1=lr1, anchor=a, lr2=lr2) for a, lr1, lr2 in WEAKER]
    return found


def main(path: Path, base: Path, seed: int = DESIGN_SEEDS[0]) -> None:
    """Run the search on the validation families of one design corpus and write it."""
    torch.set_num_threads(1)
    text, parts = StringIO(), corpus_parts(seed, TASKS)
    shared = sample_pairs(load(base), parts.train, seed)
    writer = None
    for arm in search_arms():
        (row,) = table([run_arm(base, parts, arm, seed, "validation", shared)])
        row = {"lr1": arm.lr1, "anchor": arm.anchor, "steps1": arm.steps1, "lr2": arm.lr2, "steps2": arm.steps2} | row
        row = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
        if writer is None:
            writer = csv.DictWriter(text, row, lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
        atomic_write(path, text.getvalue().encode())
        print(row, flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
