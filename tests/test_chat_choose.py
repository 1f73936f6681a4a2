import numpy as np
import pytest

pytest.importorskip("transformers")

import tiny_causal_lm

from reprise.chat import LocalModel, available
from reprise.chat_choose import KeptPrompt, choose, generate
from reprise.errors import RepriseError

ASK = [{"role": "user", "content": "w1 w2 w3"}]
OPTIONS = ["w4", "w5 w6 w7", "w8 w9", "w10", "w4 w5"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return LocalModel(tiny_causal_lm.save(tmp_path_factory.mktemp("tiny")), device="cpu")


def naive(local, messages, options, prefix=""):
    """Mean log-probability of each option's tokens, from one forward of prompt and option without any cache."""
    import torch

    text = local.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) + prefix
    prompt, scores = local.tokenizer(text, add_special_tokens=False).input_ids, []
    for option in options:
        ids = prompt + local.tokenizer(option, add_special_tokens=False).input_ids
        with torch.inference_mode():
            logprobs = torch.log_softmax(local.model(torch.tensor([ids])).logits[0].double(), -1)
        scores.append(np.mean([float(logprobs[k - 1, ids[k]]) for k in range(len(prompt), len(ids))]))
    return scores


@pytest.mark.parametrize("options", [OPTIONS, OPTIONS[:1], ["w4", "w10"], ["w5 w6 w7"]])
@pytest.mark.parametrize("prefix", ["", " w11 w12"])
def test_scores_are_those_of_prompt_and_option_read_together(tiny, options, prefix):
    index, scores = choose(tiny, ASK, options, prefix)
    assert scores == pytest.approx(naive(tiny, ASK, options, prefix), abs=1e-5)
    assert scores.dtype == np.float64 and index == int(np.argmax(scores))


def test_a_kept_prompt_changes_nothing_but_what_is_read(tiny):
    kept, total = KeptPrompt(), 0
    for words in ("w1 w2 w3", "w1 w2 w3", "w1 w2 w4 w5", "w1", "w9 w2", "w1 w2 w3 w4 w5 w6"):
        ask = [{"role": "user", "content": words}]
        index, scores = choose(tiny, ask, OPTIONS, "", kept)
        assert scores == pytest.approx(naive(tiny, ask, OPTIONS), abs=1e-5)
        total += len(words.split()) + 4  # user : ... assistant :
    assert kept.read + kept.shared == total
    # "user :" at least is shared from the second prompt on, and all but the last token of the one that is repeated
    assert kept.shared >= 6 + 4 * 2


def test_a_prompt_that_begins_another_kept_one_is_read_right(tiny):
    kept = KeptPrompt()
    long, short = ([{"role": "user", "content": text}] for text in ("w1 w2 w3 assistant : w4 w5", "w1 w2 w3"))
    for ask in (long, short, long):
        assert choose(tiny, ask, OPTIONS, "", kept)[1] == pytest.approx(naive(tiny, ask, OPTIONS), abs=1e-5)


def test_the_first_of_equal_options_is_taken(tiny):
    best = choose(tiny, ASK, OPTIONS)[0]
    others = [option for k, option in enumerate(OPTIONS) if k != best]
    assert choose(tiny, ASK, [others[0], OPTIONS[best], OPTIONS[best], OPTIONS[best]])[0] == 1


def test_generation_takes_the_likeliest_token_until_the_end_of_the_turn(tiny):
    import torch

    text = tiny.tokenizer.apply_chat_template(ASK, tokenize=False, add_generation_prompt=True)
    ids, wanted = tiny.tokenizer(text, add_special_tokens=False).input_ids, []
    with torch.inference_mode():
        for _ in range(5):
            token = int(tiny.model(torch.tensor([ids + wanted])).logits[0, -1].argmax())
            if token == tiny.tokenizer.eos_token_id:
                break
            wanted.append(token)
    assert generate(tiny, ASK, 5) == tiny.tokenizer.decode(wanted, skip_special_tokens=True)
    assert generate(tiny, text, 5) == generate(tiny, ASK, 5)


def test_draws_follow_the_seed_and_the_temperature(tiny):
    drawn = [generate(tiny, ASK, 8, temperature=1.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1
    assert generate(tiny, ASK, 8, temperature=1e-6) == generate(tiny, ASK, 8)


def test_tokens_are_drawn_as_often_as_the_model_says(tiny):
    import torch

    text = tiny.tokenizer.apply_chat_template(ASK, tokenize=False, add_generation_prompt=True)
    ids = tiny.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.inference_mode():
        p = torch.softmax(tiny.model(ids).logits[0, -1].double(), -1).numpy()
    names = [generate(tiny, ASK, 1, 1.0, seed) for seed in range(400)]
    likely = int(p.argmax())
    share = names.count(tiny.tokenizer.decode([likely])) / len(names)
    assert share == pytest.approx(p[likely], abs=4 * np.sqrt(p[likely] / 400))


@pytest.mark.parametrize("options", [[], ["w1", ""]])
def test_options_without_a_token_are_named(tiny, options):
    with pytest.raises(RepriseError, match="^options="):
        choose(tiny, ASK, options)


@pytest.mark.parametrize("kwargs", [{"max_new_tokens": 0}, {"max_new_tokens": 1, "temperature": -1}])
def test_bad_arguments_of_generation_are_named(tiny, kwargs):
    with pytest.raises(RepriseError, match="^(max_new_tokens=0|temperature=-1)"):
        generate(tiny, ASK, **kwargs)


def test_models_that_cannot_chat_are_refused(tmp_path):
    local = LocalModel(tiny_causal_lm.save(tmp_path), device="cpu")
    local.tokenizer.chat_template = None
    with pytest.raises(RepriseError, match="no chat template"):
        choose(local, ASK, OPTIONS)


@pytest.mark.skipif(available("smollm2-135m") is not None, reason=available("smollm2-135m") or "")
def test_a_real_model_scores_as_naive_concatenation_does_and_knows_a_capital():
    local = LocalModel("smollm2-135m", device="cpu", threads=1)
    ask = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "What is the capital of France?"}]
    options, prefix = [" London.", " the city of Paris.", " Paris", " Rome"], "The capital of France is"
    kept = KeptPrompt()
    for _ in range(2):
        index, scores = choose(local, ask, options, prefix, kept)
        assert scores == pytest.approx(naive(local, ask, options, prefix), abs=1e-4)
        assert index == int(np.argmax(scores)) and options[int(np.argmax(scores))] == " Paris"
    assert "Paris" in generate(local, ask, 12)
