"""Reading a growing run once gives the answers of reading it anew each time."""

import numpy as np
import pytest

pytest.importorskip("transformers")

import tiny_causal_lm

from reprise.audit.errors import AuditError
from reprise.audit.kv_stream import OPENING, StreamAuditor, prompt_tokens
from reprise.audit.online import OnlineAuditor
from reprise.audit.prompt import build_messages
from reprise.audit.replay import replay
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE
from reprise.chat import LocalModel
from reprise.traces import Turn

WORDS = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10".split()
TURNS = tuple(Turn(f"w{20 + k % 2}", "say", " ".join(WORDS[: 3 + k % 5])) for k in range(9))


def words_only(prefix):
    """Messages in the few words the tiny model knows, the part that depends on k last."""
    shown = " ".join(f"{turn.role} : {turn.content}" for turn in prefix)
    return [{"role": "user", "content": f"w0 {shown} w15 w{len(prefix)}"}]


def next_token(local, prefix, spelt=()):
    """Log-probabilities of the token after the opened answer and `spelt`, in one forward pass without a cache."""
    import torch

    ids = [*local.tokenizer(_prompt(local, prefix), add_special_tokens=False).input_ids, *spelt]
    with torch.inference_mode():
        return torch.log_softmax(local.model(torch.tensor([ids])).logits[0, -1].double(), -1).numpy()


def _prompt(local, prefix):
    return local.tokenizer.apply_chat_template(words_only(prefix), tokenize=False, add_generation_prompt=True) + OPENING


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A model whose tokens are single characters of numbers, so that turn 1 begins like turn 12."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("digits")
    names = ["<pad>", "<eos>", "<unk>", *'0123456789,":', "user", "assistant", "SAFE", *WORDS, "w20", "w21"]
    words = Tokenizer(models.WordLevel({name: k for k, name in enumerate(names)}, unk_token="<unk>"))
    split = [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]
    # letters and their digits stay together, a number of its own falls into digits
    words.pre_tokenizer = pre_tokenizers.Sequence([*split, pre_tokenizers.Split(Regex(r"^\d|(?<=^\d)\d"), "isolated")])
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    made.chat_template = tiny_causal_lm.TEMPLATE
    config = tiny_causal_lm.model().config
    config.vocab_size = len(names)
    torch.manual_seed(3)
    LlamaForCausalLM(config).save_pretrained(folder)
    made.save_pretrained(folder)
    return LocalModel(folder, device="cpu")


def test_the_log_odds_are_those_of_a_forward_pass_without_a_cache(digits):
    auditor = StreamAuditor(digits, build=words_only)
    quote = digits.tokenizer.convert_tokens_to_ids('"')
    for k in range(len(TURNS)):
        scores = next_token(digits, TURNS[: k + 1])
        first = digits.tokenizer.convert_tokens_to_ids([str(step) for step in range(min(k, 9) + 1)])
        expected = np.logaddexp.reduce(scores[first]) - scores[quote]
        assert auditor.log_odds(TURNS[: k + 1]) == pytest.approx(expected, abs=1e-5)


def test_the_step_is_spelt_out_greedily_among_visible_turns(digits):
    names = digits.tokenizer.convert_tokens_to_ids
    for turns in (1, 4, 13):
        prefix = (TURNS * 2)[:turns]
        spelt, options = [], [[*str(step), ","] for step in range(turns)]
        while len(options) > 1:
            scores = next_token(digits, prefix, names(spelt))
            best = max({option[len(spelt)] for option in options}, key=lambda name: scores[names(name)])
            options = [option for option in options if option[len(spelt)] == best]
            spelt.append(best)
        assert StreamAuditor(digits, build=words_only).likeliest_step(prefix) == int("".join(options[0][:-1]))


def test_a_kept_prompt_answers_like_one_read_anew_and_reads_each_turn_once(digits):
    kept, anew = (StreamAuditor(digits, build=words_only, keep=keep) for keep in (True, False))
    for k in range(len(TURNS)):
        assert kept.log_odds(TURNS[: k + 1]) == pytest.approx(anew.log_odds(TURNS[: k + 1]), abs=1e-5)
    counts = [
        len(digits.tokenizer(_prompt(digits, TURNS[: k + 1]), add_special_tokens=False).input_ids) for k in range(9)
    ]
    assert anew.read == sum(counts) and anew.shared == 0 and kept.read + kept.shared == anew.read
    question = 3 + len(digits.tokenizer(f"assistant :{OPENING}", add_special_tokens=False).input_ids)
    assert kept.read <= counts[-1] + 9 * question


def test_a_turn_that_is_taken_back_leaves_no_trace(digits):
    auditor = StreamAuditor(digits, build=words_only)
    changed = (*TURNS[:4], Turn("w20", "say", "w9 w9 w9"))
    other = tuple(reversed(TURNS))
    for prefix in (TURNS[:6], changed, TURNS[:5], other, TURNS[:1], TURNS):
        fresh = StreamAuditor(digits, build=words_only)
        assert auditor.log_odds(prefix) == pytest.approx(fresh.log_odds(prefix), abs=1e-5)
        assert auditor.likeliest_step(prefix) == fresh.likeliest_step(prefix)


def test_writing_leaves_the_cache_as_it_was(digits):
    auditor = StreamAuditor(digits, build=words_only)
    for k in (2, 3, 4):
        verdict, text = auditor.respond(TURNS[:k], max_new_tokens=6)
        fresh = StreamAuditor(digits, build=words_only)
        assert text == fresh.respond(TURNS[:k], max_new_tokens=6)[1]
        assert not verdict.valid  # random weights write no verdict
        assert auditor.log_odds(TURNS[:k]) == pytest.approx(fresh.log_odds(TURNS[:k]), abs=1e-5)
    assert auditor.shared > auditor.read


def test_the_threshold_decides_and_the_verdict_names_a_visible_turn(digits):
    never, always = (StreamAuditor(digits, threshold, words_only) for threshold in (np.inf, -np.inf))
    assert never(TURNS[:3]) == SAFE
    verdict = always(TURNS[:3])
    assert verdict.is_alarm and verdict.step == always.likeliest_step(TURNS[:3])
    assert verdict.agent == TURNS[verdict.step].role
    assert replay(always, Trajectory("x", TURNS)).detection_step == 0
    online = OnlineAuditor(never, ask=None)
    assert [online.observe(turn) for turn in TURNS[:2]] == [SAFE, SAFE]


def test_what_cannot_be_asked_is_refused(digits, tmp_path):
    with pytest.raises(AuditError, match="^threshold=nan"):
        StreamAuditor(digits, np.nan)
    long = StreamAuditor(digits, build=words_only)
    with pytest.raises(AuditError, match="^prefix: 90 turns are .* tokens: expected at most 512"):
        long.log_odds(TURNS * 10)
    alike = LocalModel(tiny_causal_lm.save(tmp_path), device="cpu")  # SAFE and numbers are all unknown words to it
    with pytest.raises(AuditError, match="does not tell the verdicts apart"):
        StreamAuditor(alike, build=words_only).log_odds(TURNS[:2])


def test_prompt_tokens_of_the_two_layouts():
    """The append layout reads the transcript once and the question N times; the printed order shares nothing."""
    turns = tuple(Turn("a", "say", "x" * 400) for _ in range(12))
    whole, new = prompt_tokens(turns, str.encode)
    head, final = (len(each["content"]) for each in build_messages(turns))
    question = len(build_messages(turns)[1]["content"].rsplit("\n", 1)[1])
    assert new <= head + 1 + final + 12 * question and whole > 5 * new
    paper_whole, paper_new = prompt_tokens(turns, str.encode, lambda prefix: build_messages(prefix, layout="paper"))
    assert paper_whole == whole + 12 and paper_new > 4 * new
