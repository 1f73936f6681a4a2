"""The TRL adapter in the real trainer: GRPO steps of a tiny random model on the CPU."""

import json
from importlib.util import find_spec

import pytest

from reprise.rubric import Criterion, Edge, RubricGraph, aggregate
from reprise.rubric.adapters import make_trl_reward

# trl is imported by the test: every worker collects this file
MISSING = [name for name in ("trl", "datasets", "torch") if not find_spec(name)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"could not import {', '.join(MISSING)}")

GRAPH = RubricGraph([Criterion("low", 2), Criterion("high", 3)], [Edge("low", "high", "strong")])


def share_of_words(prompt, response, graph):
    """The shares of two groups of words, in which samples of a random model differ; no scores for short responses."""
    words = [int(word[1:]) for word in response.split() if word[1:].isdigit()]
    return (
        [sum(start <= word < start + 12 for word in words) / len(words) for start in (0, 12)]
        if words[3:]
        else [None] * 2
    )


async def awaited(prompt, response, graph):
    return share_of_words(prompt, response, graph)


def train(tmp_path, rewards, rows):
    import datasets
    import torch
    import trl
    from tiny_causal_lm import model, tokenizer

    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=2,
        logging_steps=1,
        learning_rate=0.1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
        bf16=False,
    )
    trainer = trl.GRPOTrainer(
        model=model(),
        reward_funcs=rewards,
        args=config,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer(),
    )
    before = [each.detach().clone() for each in trainer.model.parameters()]
    trainer.train()
    moved = any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    return trainer, moved


@pytest.mark.parametrize("record", [GRAPH.to_reward_model(), json.dumps(GRAPH.to_reward_model())])
def test_grpo_steps_with_the_adapter(tmp_path, record, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    rows = [{"prompt": [{"role": "user", "content": f"w{k} w3"}], "reward_model": record} for k in range(4)]
    scorer = share_of_words if isinstance(record, dict) else awaited
    trainer, moved = train(tmp_path, make_trl_reward(scorer, name="gear"), rows)
    assert moved
    first = trainer.state.log_history[0]
    rewards = list(trainer._logs["rewards"]["gear"])
    assert len(rewards) == 4
    for completion, reward in zip(trainer._logs["completion"], rewards, strict=True):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        scores = share_of_words("", text, GRAPH)
        expected = float("nan") if scores[0] is None else aggregate(GRAPH, scores).reward
        assert reward == pytest.approx(expected, nan_ok=True)
    assert {"rewards/gear/mean", "gear/flat", "gear/suppressed", "gear/missing"} <= first.keys()
    assert list(trainer._logs["extra"]["gear/rubric"]) == [GRAPH.fingerprint()] * 4
