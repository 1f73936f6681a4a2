"""The loop against a world of two kinds of question, each answered rightly with the note of its kind only."""

import random

import numpy as np
import pytest
from notebooks import guidance

from reprise.memory.credit import leave_one_out
from reprise.memory.errors import EmbeddingSpaceError, MemoryFault
from reprise.memory.gate import SequentialGate, accept_probability
from reprise.memory.items import Draft, Item
from reprise.memory.loop import MistakeNotebook
from reprise.memory.settings import PUBLIC_CODE, Config
from reprise.memory.store import EmbeddingSpace, NoteStore

KINDS = {"a": 0, "b": 1, "c": 2}
SPACE = EmbeddingSpace("kinds", "1", 3)
ITEMS = [Item(f"{kind}{k}", f"{kind} question {k}", kind) for k in range(4) for kind in "abc"]


class Kinds:
    """Embeds a text by the kind it starts with; counts its requests."""

    space, requests = SPACE, 0

    def encode(self, texts):
        self.requests += 1
        return np.eye(3)[[KINDS[text[0]] for text in texts]]


class Policy:
    """Right on c always, on a and b with their note; `breaks`: notes of kind a break c."""

    def __init__(self, breaks=False):
        self.breaks, self.asked = breaks, []

    def answer(self, prompts):
        self.asked += [prompt.text for prompt in prompts]
        found = []
        for prompt in prompts:
            kind, known = prompt.item.reference, {note.subject[0] for note in prompt.notes}
            right = kind == "c" and not (self.breaks and known) or kind in known
            found.append(kind if right else "?")
        return found


class Tuner:
    def __init__(self, valid=True):
        self.valid, self.calls = valid, []

    def subjects(self, failures):
        self.calls.append(("subjects", tuple(f.item.id for f in failures)))
        return [f"{f.item.reference} kind" for f in failures]

    def extract(self, subject, failures, passed):
        self.calls.append(("extract", tuple(f.item.id for f in failures)))
        return Draft(subject, guidance(" ".join(f.item.id for f in failures))) if self.valid else None

    def merge(self, existing, draft):
        self.calls.append(("merge", tuple(note.subject for note in existing)))
        return Draft(draft.subject, guidance("merged " + draft.guidance.correct_approach))


def exact(item, answer):
    return float(answer == item.reference)


@pytest.fixture
def store(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as one:
        yield one


def loop(store, policy=None, tuner=None, judge=exact, **settings):
    return MistakeNotebook(policy or Policy(), tuner or Tuner(), judge, store, Kinds(), Config(**settings))


def test_a_batch_that_gets_better_is_committed(store):
    book = loop(store)
    report = book.step(ITEMS)
    assert report.outcome == "accepted" and report.version == store.snapshot().version == 1
    assert report.clusters == {"a kind": 4, "b kind": 4}
    (found,) = report.comparisons
    assert (found.wins, found.losses, found.ties, found.delta, found.coverage) == (8, 0, 4, 8, 1)
    assert report.added == tuple(note.id for note in store.snapshot().notes)
    assert store.snapshot().notes[0].evidence.positives == ("a0", "a1", "a2", "a3")
    assert store.snapshot().notes[0].evidence.negatives == ("c0", "c1", "c2", "c3")
    assert book.evaluate(ITEMS).accuracy() == 1


def test_a_batch_that_gets_worse_leaves_the_file_as_it_was(store):
    def forgets_c(item, answer):
        return float(answer == item.reference) if item.reference == "c" else 0.0

    book = loop(store, Policy(breaks=True), judge=forgets_c, threshold=-1.0)
    before = store.path.read_bytes()
    report = book.step(ITEMS)
    assert report.outcome == "rolled back" and report.comparisons[0].losses == 4
    assert store.path.read_bytes() == before


def test_without_failures_the_tuner_is_not_asked(store):
    tuner = Tuner()
    report = loop(store, tuner=tuner).step([item for item in ITEMS if item.reference == "c"])
    assert report.outcome == "no failures" and tuner.calls == [] and report.calls["tuner"] == 0
    assert store.snapshot().version == 0


def test_a_note_near_an_old_one_replaces_it_and_keeps_its_evidence(store):
    book = loop(store, batch=4)
    items = [item for item in ITEMS if item.reference == "a"]
    book.step(items[:2])
    first = store.snapshot().notes[0]
    harder = [Item(item.id + "x", item.query, "b") for item in items]  # of kind a by their text, wrong with its note
    tuner = book.tuner
    tuner.subjects = lambda failures: ["a kind"] * len(failures)
    report = loop(store, tuner=tuner, gate="always").step(harder)
    assert report.superseded == (first.id,)
    (note,) = store.snapshot().notes
    assert note.supersedes == (first.id,) and note.evidence.positives == ("a0", "a1", "a0x", "a1x", "a2x", "a3x")
    assert note.guidance.correct_approach.startswith("merged")


def test_the_released_code_appends_and_names_all_items(store):
    tuner = Tuner()
    book = loop(store, tuner=tuner, gate="always", **PUBLIC_CODE)
    book.step(ITEMS)
    assert tuner.calls[0] == ("subjects", tuple(sorted(item.id for item in ITEMS)))
    tuner.subjects = lambda failures: ["a kind"] * len(failures)
    book.policy.answer = lambda prompts: ["?"] * len(prompts)
    report = book.step(ITEMS[:2])
    assert report.superseded == () and len(store.snapshot().notes) == 3


def test_the_order_inside_a_batch_decides_nothing(tmp_path):
    files = set()
    for seed in range(4):
        with NoteStore(tmp_path / f"s{seed}", SPACE) as one:
            items = random.Random(seed).sample(ITEMS, len(ITEMS))
            loop(one).step(items)
            files.add(one.path.read_bytes())
    assert len(files) == 1


def test_the_version_counts_accepted_batches_and_calls_add_up(store):
    book = loop(store, batch=3)
    reports = book.fit(ITEMS, epochs=2, rng=np.random.default_rng(0))
    assert store.snapshot().version == sum(report.accepted for report in reports)
    total = sum((report.calls for report in reports), start=type(book.calls)())
    assert total == book.calls
    assert all(len(report.added) - len(report.superseded) <= len(report.clusters) for report in reports)


def test_an_unchanged_prompt_is_not_asked_again(store):
    book = loop(store)
    book.step(ITEMS)
    asked = book.policy.asked
    assert len(asked) == len(set(asked)) == 12 + 8  # c questions keep their prompts


def test_one_embedding_request_a_batch_once_the_questions_are_known(store):
    book = loop(store)
    book.evaluate(ITEMS)
    before = book.embedder.requests
    report = book.step(ITEMS)
    assert book.embedder.requests - before == report.calls["embed"] == 1


def test_an_answer_that_does_not_come_is_no_mistake_and_a_lost_one_counts(store):
    class Silent(Policy):
        def answer(self, prompts):
            return [
                None if prompt.item.id == "a0" else a
                for prompt, a in zip(prompts, super().answer(prompts), strict=True)
            ]

    tuner = Tuner()
    report = loop(store, Silent(), tuner).step(ITEMS)
    assert report.unknown == 1 and "a0" not in tuner.calls[0][1]
    assert report.comparisons[0].coverage == pytest.approx(11 / 12)


def test_a_judge_that_raises_leaves_its_item_unknown(store):
    def judge(item, answer):
        if item.id == "b1":
            raise ConnectionError("no judge")
        return exact(item, answer)

    report = loop(store, judge=judge).step(ITEMS)
    assert report.unknown == 1 and report.accepted and report.clusters["b kind"] == 3


def test_a_tuner_without_a_valid_note_changes_nothing(store):
    report = loop(store, tuner=Tuner(valid=False)).step(ITEMS)
    assert (report.outcome, report.invalid) == ("nothing to add", 2)


def test_a_known_judge_states_how_easily_noise_reaches_the_delta(store):
    report = loop(store, judge_flip=0.1).step(ITEMS)
    assert report.false_accept == pytest.approx(0, abs=1e-4)
    assert accept_probability(12, 0, 0, 0.1) > 0.3


def test_the_sequential_gate_asks_until_it_is_sure(store):
    rng = random.Random(0)

    def noisy(item, answer):
        return abs(exact(item, answer) - (rng.random() < 0.2))

    report = loop(store, judge=noisy, gate=SequentialGate(alpha=0.01)).step(ITEMS)
    assert report.accepted and len(report.comparisons) > 1


def test_an_empty_batch_and_a_large_batch_size_are_fine(store):
    assert loop(store).fit([]) == []
    assert len(loop(store, batch=100).fit(ITEMS)) == 1


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"batch": 0}, "batch=0"),
        ({"top_k": -1}, "top_k"),
        ({"close": -1}, "close"),
        ({"gate": "maybe"}, "gate"),
        ({"merging": "x"}, "merging"),
    ],
)
def test_a_bad_setting_is_named(settings, name):
    with pytest.raises(MemoryFault, match=name):
        Config(**settings)


def test_an_embedder_of_another_space_is_refused(store):
    other = Kinds()
    other.space = EmbeddingSpace("other", "1", 3)
    with pytest.raises(EmbeddingSpaceError, match="embedder of"):
        MistakeNotebook(Policy(), Tuner(), exact, store, other)


def test_a_reward_that_is_no_number_is_refused(store):
    with pytest.raises(MemoryFault, match="item 'a0': reward=nan"):
        loop(store, judge=lambda item, answer: float("nan")).step(ITEMS)


def test_a_note_s_credit_is_what_is_lost_without_it(store):
    book = loop(store)
    book.step(ITEMS)
    useless = Draft("c kind", guidance("for what is right anyway"))
    from reprise.memory.notes import Note
    from reprise.memory.store import Put

    store.commit([Put(Note(useless.subject, useless.guidance), np.eye(3)[2])])
    found = {credit.subject: credit for credit in leave_one_out(book, ITEMS)}
    assert {name: (c.used, c.gains, c.harms) for name, c in found.items()} == {
        "a kind": (4, 4, 0),
        "b kind": (4, 4, 0),
        "c kind": (4, 0, 0),
    }
    assert list(found)[-1] == "c kind"
