from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers

from reprise.labs import pretrained
from reprise.labs.verifiable_prompts import PROMPT_SETS, PromptError, Task, draw_tasks, sample

CHARACTERS = ["<pad>", "<end>", "\n", *" +=.", *"0123456789", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]


@pytest.fixture(scope="module")
def tiny():
    """A one-layer llama over single characters, with random weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")
    size = len(CHARACTERS)
    config = transformers.LlamaConfig(
        vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight *= 20  # a fresh model is so flat that any temperature would pass
    return SimpleNamespace(model=model, tokenizer=tokenizer, device="cpu")


def test_rewards_are_computed_from_the_first_line():
    task = Task("5 + 6 =", "11")
    assert [task.reward(text) for text in (" 11", " 11.\n12", "11\nno", " 12\n11", "111", "")] == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("name", PROMPT_SETS)
def test_prompts_show_three_solved_cases_and_ask_a_fourth(name):
    for task in draw_tasks(name, np.random.default_rng(0), 20):
        *solved, asked = task.prompt.split("\n")
        assert len(solved) == 3
        if name == "sums":
            assert all(eval(line.replace("=", "==")) for line in solved)
            assert eval(f"{asked}= {task.answer}")
        else:
            assert all(line.startswith(asked.rsplit(" ", 2)[0].rsplit(" ", 1)[0]) for line in solved)
            assert not any(line.endswith(f" {task.answer}") for line in solved)
    with pytest.raises(PromptError, match="^prompts='maths': expected one of sums, capitals, opposites"):
        draw_tasks("maths", np.random.default_rng(0), 1)


def test_completions_end_at_a_line_break_and_repeat_with_the_seed(tiny):
    def draw(seed):
        rng = np.random.default_rng(seed)
        return sample(tiny.model, tiny.tokenizer, ["1+1=", "abc"], rng, completions=40, tokens=12)

    drawn = draw(0)
    assert drawn.groups.tolist() == [0] * 40 + [1] * 40
    assert torch.equal(drawn.ids, draw(0).ids) and not torch.equal(drawn.ids, draw(1).ids)
    assert not drawn.mask[:, :4].any() and drawn.mask[:, 4].all()
    assert drawn.attention[40:, 0].sum() == 0  # the shorter prompt is padded on the left
    ends = {tiny.tokenizer.eos_token_id, CHARACTERS.index("\n")}
    for ids, mask in zip(drawn.ids.tolist(), drawn.mask.tolist(), strict=True):
        generated = [token for token, own in zip(ids, mask, strict=True) if own]
        assert not ends & set(generated[:-1])
        assert len(generated) == 12 or generated[-1] in ends
    assert any(text.endswith("\n") for text in drawn.texts)


def test_tokens_are_drawn_from_the_model_s_distribution(tiny):
    drawn = sample(tiny.model, tiny.tokenizer, ["7+2="], np.random.default_rng(0), completions=4000, tokens=1)
    prompt = torch.tensor([tiny.tokenizer("7+2=").input_ids])
    with torch.no_grad():
        p = torch.softmax(tiny.model(prompt).logits[0, -1].double(), -1).numpy()
    counts = np.bincount(drawn.ids[:, -1].numpy(), minlength=len(p))
    assert ((counts - 4000 * p) ** 2 / (4000 * p)).sum() < 110  # chi-squared, 58 degrees of freedom: P < 1e-4


def test_logprobs_do_not_see_the_padding(tiny):
    rng = np.random.default_rng(1)
    drawn = sample(tiny.model, tiny.tokenizer, ["1+1=", "ab"], rng, completions=2, tokens=5)
    logp, mask = pretrained.logprobs(tiny.model, drawn)
    for row in range(4):
        alone = drawn.ids[row][drawn.attention[row].bool()]
        with torch.no_grad():
            whole = torch.log_softmax(tiny.model(alone[None]).logits[0, :-1], -1).gather(-1, alone[1:, None])[:, 0]
        got = logp[row][mask[row]]
        assert got.detach().numpy() == pytest.approx(whole[-len(got) :].numpy(), abs=1e-5)


def test_grpo_raises_the_rewarded_completions(tiny, monkeypatch):
    # any prompt, and a reward that the random model can earn: the completion starts with a digit
    monkeypatch.setattr(Task, "reward", lambda self, text: float(text[:1].isdigit()))
    tiny.model.zero_grad()
    outcome = pretrained.grpo_backward(tiny, "sums", np.random.default_rng(0))
    assert 0 < outcome["reward"] < 1 and outcome["dead"] < 1 and outcome["draws"] >= 1
    prompt = torch.tensor([tiny.tokenizer("5 + 6 =").input_ids])
    digits = [CHARACTERS.index(d) for d in "0123456789"]

    def digit_probability():
        with torch.no_grad():
            return torch.softmax(tiny.model(prompt).logits[0, -1], -1)[digits].sum().item()

    before = digit_probability()
    with torch.no_grad():
        for parameter in tiny.model.parameters():
            parameter -= 0.05 * parameter.grad
    assert digit_probability() > before


def test_a_reward_nobody_earns_is_refused_after_some_draws(tiny, monkeypatch):
    monkeypatch.setattr(Task, "reward", lambda self, text: 0.0)
    monkeypatch.setattr(pretrained, "DRAWS", 2)
    with pytest.raises(PromptError, match="^prompts='sums': equal rewards within every prompt, 2 batches in a row"):
        pretrained.grpo_backward(tiny, "sums", np.random.default_rng(0))


def test_spread_fills_rounding_cells_and_nothing_else():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 16, (64, 32)).astype(np.float32)
    levels[0] = 3.0  # a block of one level has no width
    quantised = torch.from_numpy((levels - 8) * 0.01)
    vector = torch.ones(8)
    moved = quantised.clone()
    pretrained.spread([moved, vector], rng)
    noise = (moved - quantised).numpy()
    assert (noise[0] == 0).all() and vector.tolist() == [1.0] * 8
    assert np.abs(noise).max() <= 0.0050001
    assert noise[1:].std() == pytest.approx(0.01 / 12**0.5, rel=0.05)
    assert (quantised == 0).any() and not (moved == 0).any()
