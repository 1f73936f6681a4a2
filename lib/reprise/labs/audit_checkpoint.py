"""Makes the committed auditor: both stages on a design corpus, under the settings of the comparison.

    python -m reprise.labs.audit_checkpoint AUDITOR BASE

`BASE` is the checkpoint of `audit_base`; about a minute of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from reprise.labs.audit_experiments import BOTH, TASKS, chosen_arms
from reprise.labs.audit_model import load, save
from reprise.labs.audit_training import DESIGN_SEEDS, corpus_parts, train_arm


def make_auditor(base: Path, seed: int = DESIGN_SEEDS[0]):
    """The model that `BOTH` makes of the training families of one design corpus."""
    return train_arm(load(base), corpus_parts(seed, TASKS).train, chosen_arms()[BOTH], seed).model


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(save(make_auditor(Path(sys.argv[2])), Path(sys.argv[1])))
