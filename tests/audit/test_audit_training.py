import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reprise.audit.boundary_pairs import Side  # noqa: E402
from reprise.audit.metrics import AuditRecord, audit_metrics  # noqa: E402
from reprise.audit.packed import pack_prefixes, stack, token_logprobs  # noqa: E402
from reprise.audit.verdict import SAFE, alarm  # noqa: E402
from reprise.labs import audit_base, audit_baselines, audit_experiments, audit_stages, audit_training  # noqa: E402
from reprise.labs.agent_runs import build_corpus  # noqa: E402
from reprise.labs.audit_model import AuditModelError, build, copy_of, load, response_logprobs, run_packed, save  # noqa: E402
from reprise.labs.audit_prompts import AuditTrainingError, Prompt, Runs, draw_prompts  # noqa: E402
from reprise.labs.audit_training import AUDITOR, AUDITOR_SHA256, Arm, Auditor, trained_auditor  # noqa: E402
from reprise.labs.audit_vocabulary import VERDICT, VocabularyError, build_vocabulary  # noqa: E402
from reprise.policy_gradient import grpo_loss  # noqa: E402
from reprise.traces import Turn  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runs():
    return tuple(run for run in build_corpus(12, seed=3, domains=("math", "search")) if len(run) <= audit_base.TURNS)


@pytest.fixture(scope="module")
def model():
    return load(ROOT / audit_base.CHECKPOINT).eval()


@pytest.fixture(scope="module")
def data(model, runs):
    return Runs(model.vocabulary, runs)


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [SAFE, alarm(1, "A", "check")])
def test_a_verdict_survives_its_tokens(verdict):
    words = build_vocabulary([[Turn("user", "ask", "2"), Turn("A", "say", "it's 12!")]])
    tokens = words.verdict(verdict)
    assert words.parse(tuple(tokens), 1, frozenset({"user", "A"})) == verdict
    assert not words.parse(tuple(tokens[:-1]), 1, frozenset({"user", "A"})).valid


def test_a_transcript_ends_where_its_turns_end():
    words = build_vocabulary([[Turn("A", "say", "x 12")]])
    tokens, ends = words.transcript([Turn("A", "say", "x 12"), Turn("A", "say", "x 34")])
    assert [words.words[t] for t in tokens] == "<run> #0 A say x 12 ; #1 A say x 3 4 ;".split()  # 34 in digits
    assert ends == [7, 14]


def test_what_the_vocabulary_cannot_hold_is_named():
    words = build_vocabulary([[Turn("A", "say", "x")]])
    with pytest.raises(VocabularyError, match="^turn=40"):
        words.turn(40, Turn("A", "say", "x"))
    with pytest.raises(VocabularyError, match="^verdict="):
        words.verdict(alarm(1, "B"))


def test_a_checkpoint_gives_the_model_back(model, tmp_path):
    first = save(model, tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.vocabulary == model.vocabulary and loaded.shape == model.shape
    assert save(loaded, tmp_path / "b.safetensors") == first
    (tmp_path / "c.safetensors").write_bytes(b"none")
    with pytest.raises(AuditModelError, match="c.safetensors"):
        load(tmp_path / "c.safetensors")


def test_the_committed_checkpoints_are_the_ones_that_were_made():
    for name, expected in ((audit_base.CHECKPOINT, audit_base.CHECKPOINT_SHA256), (AUDITOR, AUDITOR_SHA256)):
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == expected
    assert trained_auditor(ROOT / AUDITOR).model.vocabulary == load(ROOT / audit_base.CHECKPOINT).vocabulary


# -- base --------------------------------------------------------------------------------------------------------------


def test_base_rows_ask_three_questions_and_do_not_learn_the_exchanged_word(model, runs):
    rows = audit_base.Rows(model.vocabulary, [run.turns for run in runs], np.random.default_rng(1))
    drawn = [rows.draw() for _ in range(60)]
    assert {row.branches for row, _ in drawn} == {3}
    hidden = [len(learn) - learn.sum() for _, learn in drawn]
    assert set(hidden) == {0, 1} and 0.15 < np.mean(hidden) < 0.55
    yes, no = (model.vocabulary.ids[word] for word in ("yes", "no"))
    for (row, _), gone in zip(drawn, hidden, strict=True):
        assert (yes if gone else no) in row.target


def test_the_floor_of_the_language_is_an_entropy():
    # every chance switched off would leave the task alone; what is there is between that and twice as much
    runs, nats = audit_base.language_floor(5, 6, ("math", "search"), draws=8)
    tasks = sum(np.log(20) + np.log(4) for turns in runs if turns[1].role == "MathSolver")
    assert len(runs) and nats > tasks


# -- stages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p_safe", [0.5, 0.7])
def test_prompts_have_the_share_and_the_labels_that_are_asked_for(data, p_safe):
    rng = np.random.default_rng(2)
    batches = [draw_prompts(data, rng, 32, p_safe) for _ in range(20)]
    for batch in batches:
        assert abs(sum(prompt.step is None for prompt in batch) - 32 * p_safe) <= 1
    for prompt in (prompt for batch in batches for prompt in batch):
        run = data.runs[prompt.run]
        visible = run.decisive_step is not None and run.decisive_step <= prompt.last
        assert (prompt.step, prompt.agent) == ((run.decisive_step, run.decisive_agent) if visible else (None, None))
    early = {(p.run, p.last) for batch in batches for p in batch if p.step is None}
    assert len(early) > 40  # safe prefixes of every length, not the one before the boundary alone


def test_pairs_are_right_and_wrong_and_know_their_reference(model, data):
    pairs, counts = audit_stages.collect_pairs(model, data, np.random.default_rng(3))
    labelled = [run for run in data.runs if run.decisive_step is not None]
    assert counts["BE prompts"] == len(labelled) and counts["BS prompts"] <= len(labelled)
    assert counts["BS pairs"] + counts["BE pairs"] == len(pairs) > 5
    for pair in pairs[:20]:
        chosen, rejected = data.verdicts(
            pair.prompt, np.array([np.pad(r, (0, 10 - len(r))) for r in (pair.chosen, pair.rejected)])
        )
        right = (pair.prompt.step, pair.prompt.agent)
        assert chosen.valid and (chosen.step, chosen.agent) == right
        assert not rejected.valid or (rejected.step, rejected.agent) != right
    with torch.no_grad():
        values = response_logprobs(model, audit_stages.pair_rows(data, pairs[:5])).view(-1, 2)
    assert np.array([pair.reference for pair in pairs[:5]]) == pytest.approx(values.numpy(), abs=1e-4)


def test_stage_one_starts_at_two_ln_two_and_learns_its_pairs(model, data):
    pairs, _ = audit_stages.collect_pairs(model, data, np.random.default_rng(3))
    one_each = [next(pair for pair in pairs if pair.side == side) for side in Side]
    curve = audit_stages.train_bppo(copy_of(model), data, one_each, np.random.default_rng(4), steps=12, lr=3e-3)
    assert curve[0]["loss"] == pytest.approx(2 * np.log(2), abs=1e-5)
    assert curve[-1]["loss"] < 0.8 * curve[0]["loss"] and curve[-1]["preference"] == 1
    alone = audit_stages.train_bppo(
        copy_of(model), data, one_each, np.random.default_rng(4), steps=1, lr=1e-3, sides=(Side.BEFORE,)
    )
    assert alone[0]["loss"] == pytest.approx(np.log(2), abs=1e-5)


def test_equal_responses_may_share_a_branch(model, data):
    rng = np.random.default_rng(5)
    prompts = draw_prompts(data, rng, 4, 0.5)
    responses = data.sample(model, prompts, rng, 8)
    responses[:, 1:4] = responses[:, :1]
    advantages = rng.normal(size=32)
    advantages[8:16] = 0  # a group without a gradient, whose tokens count in the mean
    reference = copy_of(model)  # the divergence of that group is left out, and has no gradient here

    def plainly():
        rows, ask = [], [model.vocabulary.ids[VERDICT]]
        for prompt, group in zip(prompts, responses, strict=True):
            prefix = data.prefix(prompt)
            rows.append(pack_prefixes(prefix, [(len(prefix), data.cut(row)) for row in group], ask))
        batch = stack(rows)
        new, ref = (token_logprobs(run_packed(m, batch), batch) for m in (trained, reference))
        weights = torch.from_numpy(advantages[batch.branch]).to(new)[None]
        return grpo_loss(new[None], new.detach()[None], ref.detach()[None], weights, torch.ones_like(new[None]).bool())

    trained = copy_of(model)
    gradients = []
    for loss in (plainly(), audit_stages._grpo_step(trained, reference, data, prompts, responses, advantages)):
        trained.zero_grad()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in trained.parameters()]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4 * gradients[0].abs().max()


def test_the_policy_gradient_moves_towards_what_is_rewarded(model, runs):
    # with safe prompts alone, Safe is the only answer that is rewarded
    data = Runs(model.vocabulary, runs)
    trained = copy_of(model)
    curve = audit_stages.train_grpo(
        trained, copy_of(trained), data, np.random.default_rng(6), steps=6, lr=3e-3, p_safe=1.0
    )
    assert curve[-1]["reward"] > curve[0]["reward"] and curve[-1]["alarms"] < 0.5 * curve[0]["alarms"]


def test_permuted_labels_are_labels_of_the_same_runs(runs):
    permuted = audit_training.permute_labels(runs, np.random.default_rng(0))
    assert [run.turns for run in permuted] == [run.turns for run in runs]
    unsafe = [sum(run.decisive_step is not None for run in each) for each in (runs, permuted)]
    assert unsafe[0] == unsafe[1]
    assert [run.decisive_step for run in runs] != [run.decisive_step for run in permuted]
    assert all(run.decisive_step is None or run.turns[run.decisive_step].role == run.decisive_agent for run in permuted)


# -- auditors ----------------------------------------------------------------------------------------------------------


def test_an_auditor_says_the_same_alone_and_in_a_batch(model, runs):
    auditor, some = Auditor(model), runs[:3]
    together = auditor.verdicts(some)
    assert [len(said) for said in together] == [len(run) for run in some]
    for run, said in zip(some, together, strict=True):
        assert [auditor(run.prefix(k)) for k in range(len(run))] == said
    records = auditor.records(runs)
    assert [each.gt_step for each in records] == [run.decisive_step for run in runs]


def test_the_odds_agree_with_the_greedy_verdict_of_a_sure_model(model, runs):
    auditor = Auditor(model)
    odds, said = auditor.log_odds(runs), auditor.verdicts(runs)
    for run, row, verdicts in zip(runs, odds, said, strict=True):
        assert row.shape == (len(run),) and np.isfinite(row).all()
        # when Safe is likelier than all alarms together, no single alarm can be the likeliest word
        assert not any(verdict.is_alarm for verdict, each in zip(verdicts, row, strict=True) if each < 0)


def test_thresholds_are_the_best_there_are(runs):
    rng = np.random.default_rng(1)
    scores = [rng.random(len(run)) + 0.5 * (np.arange(len(run)) == run.decisive_step) for run in runs]

    def f1(threshold):
        return audit_metrics(audit_baselines.first_crossing(runs, scores, threshold), by=None).exact_f1_table

    best = audit_baselines.best_threshold(runs, scores)
    grid = np.unique(np.quantile(np.concatenate(scores), np.linspace(0, 1, audit_baselines.CANDIDATES)))
    assert f1(best) == pytest.approx(max(map(f1, grid)))


def test_constants_and_the_oracle(runs):
    oracle = audit_baselines.summary(audit_baselines.oracle_rule(runs))
    assert (oracle["F1"], oracle["FAR"], oracle["ASS"]) == (100, 0, 0)
    assert audit_baselines.summary(audit_baselines.constant(runs, None))["F1"] == 0
    assert audit_baselines.summary(audit_baselines.constant(runs, 1))["FAR"] == 100


def test_baselines_score_every_turn(model, runs):
    for score in (audit_baselines.surprise, audit_baselines.reflection, audit_baselines.tree_of_thought):
        found = score(model, runs)
        assert [len(row) for row in found] == [len(run) for run in runs]
        assert all(np.isfinite(row).all() for row in found)
    found = audit_baselines.baselines(model, runs, runs)
    assert {len(records) for records in found.values()} == {len(runs)}
    assert audit_metrics(found["post hoc"], by=None).far == 100


# -- comparisons -------------------------------------------------------------------------------------------------------


def test_a_difference_of_f1_is_that_of_the_metrics():
    rng = np.random.default_rng(0)

    def predictions(seed):
        rng = np.random.default_rng(seed)
        return [None if rng.random() < 0.3 else int(rng.integers(4)) for _ in labels]

    labels = [None if rng.random() < 0.5 else int(rng.integers(4)) for _ in range(60)]
    ours, theirs = (
        [AuditRecord(str(n), g, p, family=str(n // 3)) for n, (g, p) in enumerate(zip(labels, said, strict=True))]
        for said in (predictions(1), predictions(2))
    )
    got, low, high = audit_experiments.f1_difference(ours, theirs)
    expected = audit_metrics(ours, by=None).exact_f1_table - audit_metrics(theirs, by=None).exact_f1_table
    assert got == pytest.approx(expected)
    assert low < got < high
    assert audit_experiments.f1_difference(ours, ours) == (0, 0, 0)


def test_one_stage_gets_as_many_steps_as_two():
    arms = audit_experiments.chosen_arms()
    total = {name: arm.steps1 + arm.steps2 for name, arm in arms.items()}
    assert total["BPPO"] == total["GRPO"] == total["SFT"] == total["BPPO then GRPO"]
    assert arms["BPPO then GRPO"].lr1 == arms["BPPO"].lr1 and arms["SFT then GRPO"].lr1 == arms["SFT"].lr1


def test_an_arm_is_trained_and_evaluated(model, runs, tmp_path):
    save(model, tmp_path / "base.safetensors")
    parts = audit_training.Parts(runs, runs[:4], runs)
    arm = Arm("tiny", "bppo", steps1=2, lr1=1e-3, steps2=2, lr2=1e-3)
    (result,) = audit_experiments.run_all(tmp_path / "base.safetensors", {0: parts}, [arm])
    assert len(result.records) == len(runs) and len(result.curves["stage 2"]) == 2
    assert 0 <= result.before <= 1 and 0 <= result.at_error <= 1
    assert result.pairs["BE prompts"] > 0
    permuted = audit_training.train_arm(model, runs, replace(arm, permuted=True, stage1="sft"), 0)
    assert set(permuted.curves) == {"stage 1", "stage 2"}


@pytest.mark.parametrize("options, name", [({"stage1": "dpo"}, "stage1='dpo'"), ({"p_safe": 2}, "p_safe=2")])
def test_an_arm_that_is_none_is_named(options, name):
    with pytest.raises(AuditTrainingError, match=f"^{name}"):
        Arm("x", **options)


def test_a_prompt_shows_a_prefix(data):
    run = data.runs[0]
    assert data.prefix(Prompt(0, 1)) == model_tokens(data, run, 2)


def model_tokens(data, run, turns):
    return data.vocabulary.transcript(run.turns[:turns])[0]


def test_training_the_base_lowers_both_losses(runs):
    rng, turns = np.random.default_rng(0), [run.turns for run in runs]
    made = build(rng, build_vocabulary(turns), width=16, layers=1, heads=2)
    setting = audit_base.BaseSetting(steps=60, batch=4, lr=4e-2)
    losses = np.array(audit_base.train(made, audit_base.Rows(made.vocabulary, turns, rng), setting))
    assert (losses[-5:, 1:].mean(0) < 0.8 * losses[:3, 1:].mean(0)).all()


def test_the_committed_base_is_near_the_floor_of_the_language(model):
    loss, floor = audit_base.held_out_loss(model, seed=3, tasks=12, domains=("math", "search"))
    assert floor < loss + 0.02 and loss < floor + 0.1
