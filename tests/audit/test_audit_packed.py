import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.audit.errors import AuditError
from reprise.audit.packed import pack_prefixes, stack, token_logprobs

torch = pytest.importorskip("torch")

from reprise.labs.audit_model import AuditLM, Reader, build, next_words, respond, response_logprobs  # noqa: E402
from reprise.labs.audit_vocabulary import CLOSE, RESPONSE_TOKENS, VERDICT, build_vocabulary  # noqa: E402
from reprise.traces import Turn  # noqa: E402

WORDS = build_vocabulary([[Turn("A", "say", " ".join(f"w{k}" for k in range(40)))]])


@pytest.fixture(scope="module")
def model() -> AuditLM:
    made = build(np.random.default_rng(3), WORDS, width=32, layers=2, heads=2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)  # far from uniform, so that a leak would show
    return made.eval()


def some_tokens(count, seed=0):
    return np.random.default_rng(seed).integers(1, len(WORDS), count).tolist()


BRANCHES = [(5, some_tokens(3, 1)), (5, some_tokens(4, 2)), (12, some_tokens(1, 3)), (1, some_tokens(2, 4))]


def alone(model, prefix, response):
    """Log-probabilities of a response by a plain causal pass over prefix + response."""
    ids = torch.tensor([[*prefix, *response]])
    n = ids.shape[1]
    logits = model(ids, torch.arange(n)[None], torch.ones(1, n, n, dtype=torch.bool).tril())
    logp = logits[0, len(prefix) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[0, len(prefix) :, None])[:, 0]


def packed_logprobs(model, rows):
    batch = stack(rows)
    logits = model(*(torch.from_numpy(each) for each in (batch.ids, batch.positions, batch.mask)))
    values = token_logprobs(logits, batch)
    return [values[torch.from_numpy(batch.branch == b)] for b in range(batch.branches)]


def test_the_layout_of_a_small_row():
    row = pack_prefixes([5, 6, 7], [(2, [8, 9]), (3, [4])], question=[1])
    assert row.ids.tolist() == [5, 6, 7, 1, 8, 9, 1, 4]
    assert row.positions.tolist() == [0, 1, 2, 2, 3, 4, 3, 4]
    assert row.predictor.tolist() == [3, 4, 6] and row.target.tolist() == [8, 9, 4]
    assert row.branch.tolist() == [0, 0, 1]
    sees = [np.flatnonzero(line).tolist() for line in row.mask]
    assert sees[:3] == [[0], [0, 1], [0, 1, 2]]
    assert sees[3:] == [[0, 1, 3], [0, 1, 3, 4], [0, 1, 3, 4, 5], [0, 1, 2, 6], [0, 1, 2, 6, 7]]


@pytest.mark.parametrize("question", [[], [7, 9]])
def test_packed_is_one_forward_pass_a_branch(model, question):
    transcript = some_tokens(12)
    got = packed_logprobs(model, [pack_prefixes(transcript, BRANCHES, question)])
    for (end, response), values in zip(BRANCHES, got, strict=True):
        assert (values - alone(model, [*transcript[:end], *question], response)).abs().max() < 1e-5


def test_rows_of_other_lengths_change_nothing(model):
    rows = [pack_prefixes(some_tokens(n, n), [(2, some_tokens(3, n + 1))]) for n in (4, 30, 11)]
    together = packed_logprobs(model, rows)
    for row, values in zip(rows, together, strict=True):
        assert (packed_logprobs(model, [row])[0] - values).abs().max() < 1e-5


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_sibling_changes_nothing(model, data):
    transcript = some_tokens(12)
    branch = st.tuples(st.integers(1, 12), st.lists(st.integers(1, len(WORDS) - 1), min_size=1, max_size=4))
    siblings = data.draw(st.lists(branch, max_size=4))
    with_siblings = packed_logprobs(model, [pack_prefixes(transcript, [*siblings, *BRANCHES[:1]])])[-1]
    assert (with_siblings - packed_logprobs(model, [pack_prefixes(transcript, BRANCHES[:1])])[0]).abs().max() < 1e-5


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 11), st.data())
def test_what_stands_behind_the_prefix_cannot_be_seen(model, end, data):
    transcript, response = some_tokens(12), [3, 4]
    other = list(transcript)
    at = data.draw(st.integers(0, 11))
    other[at] = other[at] % (len(WORDS) - 1) + 1  # another token
    plain, edited = (packed_logprobs(model, [pack_prefixes(t, [(end, response)])])[0] for t in (transcript, other))
    if at >= end:
        assert torch.equal(plain, edited)
    else:
        assert not torch.equal(plain, edited)


def test_gradients_are_those_of_separate_passes(model):
    transcript = some_tokens(12)

    def gradient(loss):
        model.zero_grad()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    packed = gradient(sum(v.sum() for v in packed_logprobs(model, [pack_prefixes(transcript, BRANCHES)])))
    apart = gradient(sum(alone(model, transcript[:end], response).sum() for end, response in BRANCHES))
    assert (packed - apart).abs().max() < 1e-4 * apart.abs().max()


def test_greedy_answers_are_the_likeliest_tokens_of_a_plain_pass(model):
    transcripts = [some_tokens(9, 5), some_tokens(14, 6)]
    ends = [[3, 9, 9], [2, 7, 14]]
    answers = respond(model, transcripts, ends, VERDICT)
    assert answers.shape == (2, 3, RESPONSE_TOKENS)
    ask, close = WORDS.ids[VERDICT], WORDS.ids[CLOSE]
    for tokens, row, said in zip(transcripts, ends, answers, strict=True):
        for end, answer in zip(row, said, strict=True):
            prefix = [*tokens[:end], ask]
            for token in answer:
                n = len(prefix)
                logits = model(
                    torch.tensor([prefix]), torch.arange(n)[None], torch.ones(1, n, n, dtype=torch.bool).tril()
                )
                assert logits[0, -1].argmax() == token
                prefix.append(int(token))
                if token == close:
                    break


def test_sampling_takes_the_token_whose_share_holds_the_draw(model):
    transcript, draws = some_tokens(6, 8), np.random.default_rng(0).random((1, 1500, RESPONSE_TOKENS))
    answers = respond(model, [transcript], [[6] * 1500], VERDICT, draws)
    words = WORDS.words
    expected = np.exp(next_words(model, [transcript], [[6]], VERDICT, words)[0, 0])
    seen = np.bincount(answers[0, :, 0], minlength=len(words)) / 1500
    assert expected.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(seen - expected).max() < 0.04
    assert (respond(model, [transcript], [[6] * 1500], VERDICT, draws) == answers).all()


def test_surprise_is_the_loss_of_the_transcript(model):
    transcript = some_tokens(10, 9)
    with torch.no_grad():
        nats = Reader(model, [transcript, transcript[:4]]).surprise()
        assert (nats[0] + alone(model, transcript[:1], transcript[1:])).abs().max() < 1e-5
        assert (nats[1, :3] - nats[0, :3]).abs().max() < 1e-6


def test_whole_responses_add_their_tokens(model):
    row = pack_prefixes(some_tokens(12), BRANCHES)
    with torch.no_grad():
        sums = response_logprobs(model, stack([row, row]))
        expected = [values.sum().item() for values in packed_logprobs(model, [row])]
    assert sums.tolist() == pytest.approx(2 * expected, abs=1e-5)


@pytest.mark.parametrize(
    "transcript, branches, name",
    [
        ([], [], "transcript"),
        ([1, 2], [(0, [1])], r"branches\[0\]: end=0"),
        ([1, 2], [(1, [1]), (3, [1])], r"branches\[1\]: end=3"),
        ([1, 2], [(1, [])], r"branches\[0\]: empty"),
    ],
)
def test_what_cannot_be_packed_is_named(transcript, branches, name):
    with pytest.raises(AuditError, match=f"^{name}"):
        pack_prefixes(transcript, branches)
