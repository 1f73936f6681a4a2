"""Reward functions with the signatures of verl and TRL.

    verl 0.9   compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs), called or awaited for
               one response (reward loop), or with plural names for a batch of them (batch reward manager)
    TRL 1.x    reward(prompts, completions, completion_ids, **columns)

Both find the rubric in a column of the training data named `reward_model` (verl: inside `extra_info`), in the layout of
`RubricGraph.from_reward_model`.

Source: verl 0.9.1, experimental/reward_loop/reward_manager/naive.py and workers/reward_manager/batch.py;
TRL 1.16, GRPOTrainer._calculate_rewards.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np

from reprise.rubric.errors import RubricError
from reprise.rubric.judging import Scorer
from reprise.rubric.reward_rows import RewardRow, RewardRows, Row, graph_of
from reprise.rubric.rubric_file import message_text
from reprise.rubric.scores import choose

SHAPES = ("sample", "batch")


def make_verl_reward(
    scorer: Scorer,
    *,
    shape: str = "sample",
    on_missing: str = "skip",
    column: str = "reward_model",
    prompt_column: str = "prompt",
    log: bool = False,
    name: str = "compute_score",
    **options: Any,
) -> Callable:
    """A `compute_score` for verl's custom_reward_function.

    A response whose rubric or scores are missing gets score 0 and scored 0, since verl has no reward that is ignored.

    Args:
        scorer: judges one response.
        shape: "sample" for the reward loop, "batch" for the batch reward manager. An awaited scorer makes a sample
            function that verl awaits; a batch function awaits it for all responses at once, by itself.
        on_missing: what a missing score does; see `RewardRows`.
        column: where the rubric stands in extra_info.
        prompt_column: where the prompt stands in extra_info; verl itself passes none. Text or messages.
        log: add what `reprise rubric audit` reads, each field as JSON text, which verl's metrics leave alone. A
            response with a missing score is a line the audit refuses, or counts and leaves out by --skip-bad-lines.
        name: of the function.
        options: further arguments of `aggregate`.

    Returns:
        a function that returns, for each response, a dictionary with the same keys every time: score, flat (the plain
        weighted sum), missing (scores the judge did not give), scored (1 or 0), rubric (the graph's fingerprint).

    Raises:
        RubricError, TypeError: an option that is refused.
    """
    choose("shape", shape, SHAPES)
    if on_missing == "none":
        raise RubricError("on_missing='none': verl knows no reward that is ignored: expected skip, zero or error")
    core, columns = RewardRows(scorer, on_missing, options), (prompt_column, column)

    if shape == "batch":

        def compute_score(data_sources=None, solution_strs=(), ground_truths=None, extra_infos=None, **kwargs):
            batch = _verl_rows(solution_strs, extra_infos, *columns)
            results = _run(core.arewards(batch)) if core.is_async else core.rewards(batch)
            return [_columns(each, log) for each in results]

    elif core.is_async:

        async def compute_score(data_source=None, solution_str="", ground_truth=None, extra_info=None, **kwargs):
            (result,) = await core.arewards(_verl_rows([solution_str], [extra_info], *columns))
            return _columns(result, log)

    else:

        def compute_score(data_source=None, solution_str="", ground_truth=None, extra_info=None, **kwargs):
            (result,) = core.rewards(_verl_rows([solution_str], [extra_info], *columns))
            return _columns(result, log)

    compute_score.__name__ = compute_score.__qualname__ = name
    return compute_score


def _verl_rows(responses: Sequence[str], extra_infos: Sequence | None, prompt_column: str, column: str) -> list[Row]:
    infos = [None] * len(responses) if extra_infos is None else extra_infos
    if len(infos) != len(responses):
        raise RubricError(f"extra_infos: {len(infos)}: expected {len(responses)}, one a response")
    extras = map(_extra, infos)
    return [
        Row(message_text(extra.get(prompt_column)), str(response), graph_of(extra.get(column)))
        for response, extra in zip(responses, extras, strict=True)
    ]


def make_trl_reward(
    scorer: Scorer,
    *,
    on_missing: str = "none",
    column: str = "reward_model",
    name: str = "gear_reward",
    **options: Any,
) -> Callable:
    """A reward function for TRL's GRPOTrainer and its kin.

    A row without a rubric, or without a reward by `on_missing`, gets None, which TRL leaves out of the sum. Where the
    trainer offers it, the completions table gains `{name}/flat` and `{name}/rubric` (the graph's fingerprint), and the
    metrics `{name}/flat`, `{name}/suppressed` (flat less reward) and `{name}/missing` (scores a response lacked), each
    a mean over the batch.

    Args:
        scorer: judges one response; an awaited one makes a function that TRL gathers with others.
        on_missing: what a missing score does; see `RewardRows`.
        column: of the data set, with the rubric; `rubric_graph` is looked for where it is absent.
        name: under which TRL logs.
        options: further arguments of `aggregate`.

    Raises:
        RubricError, TypeError: an option that is refused.
    """
    core = RewardRows(scorer, on_missing, options)

    def rows(prompts: Sequence, completions: Sequence, columns: Mapping[str, Any]) -> list[Row]:
        records = columns.get(column, columns.get("rubric_graph"))
        if records is None:
            raise RubricError(f"column {column!r}: not in the data set: expected it, or rubric_graph")
        if not len(prompts) == len(records) == len(completions):
            raise RubricError(
                f"{len(prompts)} prompts, {len(records)} rubrics: expected {len(completions)}, one a completion"
            )
        return [
            Row(message_text(prompt), _completion_text(completion), graph_of(record))
            for prompt, completion, record in zip(prompts, completions, records, strict=True)
        ]

    if core.is_async:

        async def reward(prompts, completions, completion_ids=None, **columns):
            return _reported(await core.arewards(rows(prompts, completions, columns)), name, columns)

    else:

        def reward(prompts, completions, completion_ids=None, **columns):
            return _reported(core.rewards(rows(prompts, completions, columns)), name, columns)

    reward.__name__ = reward.__qualname__ = name
    return reward


def _extra(value: Any) -> Mapping[str, Any]:
    """verl's extra_info: an object, an array around it, its JSON text, or nothing."""
    value = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RubricError("extra_info: a text that is no JSON: expected an object") from None
    if value is not None and not isinstance(value, Mapping):
        raise RubricError(f"extra_info: {type(value).__name__}: expected an object")
    return value or {}


def _columns(row: RewardRow, log: bool) -> dict[str, Any]:
    """verl averages the numbers over a batch and takes the keys of the first response for all: no None, no NaN."""
    found = {
        "score": row.reward if row.scored else 0.0,
        "flat": row.flat if row.scored else 0.0,
        "missing": float(row.missing),
        "scored": float(row.scored),
        "rubric": "" if row.graph is None else row.graph.fingerprint(),
    }
    return found | _logged(row) if log else found


def _logged(row: RewardRow) -> dict[str, str]:
    """The public code's names; lists as JSON text, because NumPy refuses a column of lists of different lengths."""
    graph = row.graph
    fields = {
        "rubric_ids": [] if graph is None else list(graph.ids),
        "rubric_weights": [] if graph is None else list(graph.weights),
        "graph_edges": [] if graph is None else graph.to_reward_model()["graph"]["edges"],
        "p_list": [None if np.isnan(each) else float(each) for each in row.p],
        "q_list": [None if np.isnan(each) else float(each) for each in row.q],
    }
    return {field: json.dumps(value, ensure_ascii=False) for field, value in fields.items()}


def _reported(rows: Sequence[RewardRow], name: str, columns: Mapping[str, Any]) -> list[float | None]:
    """The rewards, after the trainer's own log has been given the rest."""
    if log_extra := columns.get("log_extra"):
        log_extra(f"{name}/flat", [row.flat if row.scored else None for row in rows])
        log_extra(f"{name}/rubric", [row.graph.fingerprint() if row.graph else "" for row in rows])
    scored = [row for row in rows if row.scored]
    if (log_metric := columns.get("log_metric")) and scored:
        log_metric(f"{name}/flat", float(np.mean([row.flat for row in scored])))
        log_metric(f"{name}/suppressed", float(np.mean([row.flat - row.reward for row in scored])))
    if log_metric and rows:
        log_metric(f"{name}/missing", float(np.mean([row.missing for row in rows])))
    return [row.reward if row.scored else None for row in rows]


def _completion_text(completion: Any) -> str:
    """A completion's text, none where there is no completion; of a conversation, what the assistant said in it."""
    if completion is None or isinstance(completion, str):
        return completion or ""
    if isinstance(completion, Mapping) or not all(isinstance(turn, Mapping) for turn in completion):
        raise RubricError(f"completion: {type(completion).__name__}: expected a text, or a list of messages")
    said = [turn for turn in completion if turn.get("role", "assistant") == "assistant"]
    return "\n".join(message_text([turn]) for turn in said)


def _run(coroutine: Coroutine) -> Any:
    """The result of a coroutine, from code that is not awaited, whether or not a loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: dict[str, Any] = {}

    def other_thread():
        try:
            outcome["result"] = asyncio.run(coroutine)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]
