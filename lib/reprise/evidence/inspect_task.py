"""Cases as a task of inspect_ai: its tools call the case's environment, its scorer is the evaluator.

    eval(evidence_task(cases, epochs=3), model="openai/...")
    eval(evidence_task(cases), model=replay_model({case_id: [(tool, args), ...], ...}))

An environment belongs to one sample and epoch and lives in the sample's store. The score is 1 or 0, the codes are its
explanation. A log of such a run is read back by `reprise.evidence.logs`.
Source: SafeActBench, evaluation through inspect_ai; inspect_ai 0.3, solvers, tools, scorers, model APIs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprise.evidence.environment import Environment
from reprise.evidence.errors import CaseError, EvidenceError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.model import Case, CaseView, Protocol, Tool

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.model import Model
    from inspect_ai.tool import ToolDef

CASE, WORLD, RECORD = "evidence_case", "evidence_environment", "evidence_trajectory"
"""Keys of a sample's store: the case's id, its environment while it runs, and the recorded trajectory."""

Calls = Sequence[tuple[str, Mapping[str, Any]]]


def evidence_task(cases: Iterable[Case], epochs: int = 1) -> Task:
    """A task with one sample a case; the sample's id is the case's.

    Raises CaseError for an id that stands twice; ImportError: inspect_ai is not installed.
    """
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

    known: dict[str, Case] = {}
    for case in cases:
        if case.view.id in known:
            raise CaseError(f"case {case.view.id!r} stands twice: expected unique ids")
        known[case.view.id] = case
    samples = [Sample(id=name, input=prompt_text(case.view)) for name, case in known.items()]
    return Task(dataset=samples, solver=_solver(known), scorer=_scorer(known), epochs=epochs, name="evidence")


def prompt_text(view: CaseView) -> str:
    """What the agent is told: the task, the facts it hands over, and the time."""
    stated = [f"{each.entity}: {each.field} is {json.dumps(each.value, ensure_ascii=False)}" for each in view.context]
    candidate = [f"Proposed action: {json.dumps(view.candidate, ensure_ascii=False)}"] if view.candidate else []
    return "\n".join([view.prompt, *stated, *candidate, f"It is now {view.reference_time}."])


def replay_model(calls: Mapping[str, Calls], last: str = "Done.") -> Model:
    """A model that makes recorded calls, one a message, and needs no network.

    Args:
        calls: case id -> its calls; an argument "@name" stands for what an earlier call of the episode returned under
            that name.
        last: what it says at the end.
    """
    from inspect_ai.model import get_model

    return get_model(f"{_replay_api()}/recorded", memoize=False, calls=calls, last=last)


def _solver(cases: Mapping[str, Case]):
    from inspect_ai.solver import Generate, TaskState, solver

    @solver(name="evidence")
    def make():
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            case = cases[str(state.sample_id)]
            environment = Environment(case)
            state.store.set(CASE, case.view.id)
            state.store.set(WORLD, environment)
            lock = asyncio.Lock()
            state.tools = [_tool(tool, environment, lock).as_tool() for tool in case.view.tools]
            state = await generate(state, tool_calls="loop")
            if state.output.stop_reason == "stop" and not state.output.message.tool_calls:
                if case.view.protocol is Protocol.LEGACY:
                    environment.decide(state.output.completion)
                elif len(environment.trajectory().steps) < case.view.step_budget:
                    environment.finish()
            # what a store holds at the end is written to the log
            state.store.set(WORLD, None)
            state.store.set(RECORD, environment.trajectory().to_json())
            return state

        return solve

    return make()


def _tool(tool: Tool, environment: Environment, lock: asyncio.Lock) -> ToolDef:
    from inspect_ai.tool import ToolDef, ToolParams
    from inspect_ai.util import JSONSchema

    async def execute(**args: Any) -> str:
        async with lock:
            try:
                response = environment.call(tool.name, **{k: value for k, value in args.items() if value is not None})
            except EvidenceError as error:  # the step budget is spent
                response = {"status": "error", "message": str(error)}
        return json.dumps(response, ensure_ascii=False)

    properties = {name: JSONSchema(type=p.type, description=p.description or name) for name, p in tool.params.items()}
    required = [name for name, p in tool.params.items() if p.required]
    return ToolDef(
        execute,
        name=tool.name,
        description=tool.description or tool.name,
        parameters=ToolParams(properties=properties, required=required),
        parallel=False,
    )


def _scorer(cases: Mapping[str, Case]):
    from inspect_ai.scorer import Score, Target, mean, stderr
    from inspect_ai.scorer import scorer as registered
    from inspect_ai.solver import TaskState

    from reprise.evidence.trajectory import Trajectory

    @registered(metrics=[mean(), stderr()], name="ecs")
    def make():
        async def score(state: TaskState, target: Target) -> Score:
            recorded = Trajectory.from_json(state.store.get(RECORD))
            verdict = evaluate(cases[str(state.sample_id)], recorded)
            codes = [code for _, code in verdict.codes]
            return Score(value=float(verdict.ecs), explanation="; ".join(codes) or "supported",
                         metadata={"codes": codes, "reads": verdict.reads})  # fmt: skip

        return score

    return make()


def _replay_api() -> str:
    """Register the model API and return its name."""
    from inspect_ai.model import ChatCompletionChoice as Choice
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ModelAPI, ModelOutput, ModelUsage, modelapi
    from inspect_ai.tool import ToolCall
    from inspect_ai.util import store

    class Replay(ModelAPI):
        def __init__(self, model_name, base_url=None, api_key=None, config=None, calls=(), last="Done.", **args):
            super().__init__(model_name, base_url, api_key)
            self.calls, self.last = calls, last

        async def count_text_tokens(self, text: str) -> int:
            return len(text) // 4  # the default downloads a vocabulary

        async def generate(self, input, tools, tool_choice, config):
            results = [message for message in input if isinstance(message, ChatMessageTool)]
            made = self.calls[store().get(CASE)]
            if len(results) >= len(made):
                output = ModelOutput.from_content(self.model_name, self.last)
            else:
                name, args = made[len(results)]
                call = ToolCall(id=f"call_{len(results) + 1}", function=name, arguments=_filled(args, results))
                message = ChatMessageAssistant(content="", tool_calls=[call], model=self.model_name)
                choices = [Choice(message=message, stop_reason="tool_calls")]
                output = ModelOutput(model=self.model_name, choices=choices)
            output.usage = ModelUsage()
            return output

    name = "evidence_replay"
    modelapi(name=name)(Replay)
    return name


def _filled(args: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for message in results:
        if message.error is None:
            known |= json.loads(message.text)
    return {k: known.get(v[1:], v) if isinstance(v, str) and v.startswith("@") else v for k, v in args.items()}
