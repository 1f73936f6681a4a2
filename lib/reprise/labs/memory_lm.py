"""A real language model of 135 million parameters in the experiments of memory, run once and kept.

    python -m reprise.labs.memory_lm OUT        asks the model for what OUT does not hold yet; minutes to an hour

writes `lm_choices.csv` and `lm_replies.json` (everything the model was asked, by key), the tables `lm_probe.csv`,
`lm_answers.csv`, `lm_gate.csv`, `lm_practice.csv`, `lm_service.csv`, `lm_tuner.csv`, and `lm_run.json`. A run that was
cut short goes on where it was. `tables` computes the same tables from what was kept, without the model.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from reprise.durable import atomic_write
from reprise.labs import lm_loop, lm_practice, lm_probe
from reprise.labs.lm_choices import MODEL, KeptChoices
from reprise.local_models import PACKAGED

# design ran on seeds 0-3; what each part of the run asks, in the order in which it asks
PROBE = {"seeds": range(500, 504), "count": 3}
LOOPS = (("sql", 510), ("pipelines", 511), ("sql", 512), ("sql", 513))
PRACTICE = range(520, 524)
WRITER = ("sql", 530)
CONDITIONS = len(lm_probe.CONDITIONS)
EXPECTED = (
    2 * len(PROBE["seeds"]) * PROBE["count"] * CONDITIONS + 190 * len(LOOPS) + 28 * len(PRACTICE)
)  # steps of the bar, about
PARTS = ("probe", "practice", "loop", "tuner")


def tables(
    choices: KeptChoices, parts: Iterable[str] = PARTS, done: Callable[[], object] = lambda: None
) -> dict[str, pd.DataFrame]:
    """The tables of the parts named, by name: probe, answers and gate (of the loop), practice and service, tuner."""
    found = {}
    if "probe" in parts:
        found["probe"] = lm_probe.probe(choices, **PROBE, done=done)
    if "loop" in parts:
        runs = [lm_loop.loop(choices, world, seed, done=done) for world, seed in LOOPS]
        for name, frames in zip(("answers", "gate"), zip(*runs, strict=True), strict=True):
            found[name] = pd.concat(frames, ignore_index=True)
    if "practice" in parts:
        found["practice"] = lm_practice.chosen(choices, PRACTICE, done)
        found["service"] = lm_practice.worth(found["practice"])
    if "tuner" in parts:
        found["tuner"] = lm_loop.written(choices, *WRITER)
    return found


def kept(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run, as it was written."""
    return pd.read_csv(folder / f"lm_{name}.csv")


def rerun(folder: Path, count: int) -> pd.DataFrame:
    """Ask the model here for the first SQL cases of the probe's first seed again.

    Args:
        folder: of a run.
        count: cases, at most the probe's of a seed; each is asked under every condition.

    Returns:
        columns condition, kept, now: right choices of the cases in the run and now.

    Raises:
        reprise.chat.ModelUnavailable: the model is not installed (`make models`).
    """
    from reprise.chat import LocalModel

    live = KeptChoices(model=LocalModel(MODEL, dtype="float32", device="cpu", threads=1))
    now = lm_probe.probe(live, PROBE["seeds"][:1], count, ("sql",))
    both = now.merge(kept(folder, "probe"), on=["world", "seed", "item", "condition"], suffixes=("_now", "_kept"))
    sums = both.groupby("condition", sort=False)[["right_kept", "right_now"]].sum()
    return sums.set_axis(["kept", "now"], axis=1).reset_index()


def main() -> None:
    """Run the parts named and write what was found."""
    from tqdm import tqdm

    from reprise.chat import LocalModel

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    choices = KeptChoices(options.out, LocalModel(MODEL, dtype="float32", device="cpu", threads=1))
    with tqdm(total=EXPECTED, unit="choice", mininterval=10) as bar:
        found = tables(choices, options.parts, lambda: bar.update())
    choices.close()
    for name, frame in found.items():
        text = frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
        atomic_write(options.out / f"lm_{name}.csv", text.encode())
    atomic_write(options.out / "lm_run.json", (json.dumps(_facts(choices), indent=1) + "\n").encode())


def _facts(choices: KeptChoices) -> dict:
    """What the tables came from."""
    return {
        "model": MODEL,
        "sha256": PACKAGED[MODEL].sha256,
        "settings": {"dtype": "float32", "device": "cpu", "threads": 1},
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "seeds": {
            "probe": list(PROBE["seeds"]),
            "loop": [list(each) for each in LOOPS],
            "practice": list(PRACTICE),
            "tuner": WRITER[1],
        },
        "choices": len(choices.choices),
        "replies": len(choices.replies),
        "retrieval": {"embedder": lm_loop.SPACE, "threshold": lm_loop.THRESHOLD, "top_k": lm_loop.TOP_K},
    }


if __name__ == "__main__":
    main()
