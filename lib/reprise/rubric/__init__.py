"""Rubric rewards whose criteria depend on each other: a typed graph between judge scores and the scalar reward.

>>> graph = RubricGraph([Criterion("grounded", 1), Criterion("evidence", 1)], [Edge("grounded", "evidence", "weak")])
>>> result = aggregate(graph, [0.2, 0.9])
>>> round(result.reward, 3), result.q.round(3).tolist()
(0.406, [0.2, 0.612])

Where to find what the paper describes:

    criteria, weights, typed graph (3.1, 3.2)   graph; reward_model and rubric_file for the layouts of training data
    flat sum, reward (equations 2, 14)          aggregate; what they are divided by: validate.denominator
    conditional model alpha (equations 6-9)     marginals; retention: lambda by type (table 7) and its exponent (4.5)
    linear update (equations 10-13)             marginals.mean_field_program; run by aggregate for one prompt, by batch,
                                                programs and registers for a training step
    exact marginals (appendix B.2)              marginals (moments), elimination (dense graphs), bounds
    hard gating, several parents (4.1, 4.7)     gates
    graph construction (appendix A)             build; judging, judge_questions and the judges: rule_judge,
                                                endpoint_judge, local_judge; projection in validate
    leakage and preservation (4.3, appendix F)  leakage; farming, farming_sums and trend over a training log, read by
                                                rollout_log and rollout_fields
    controls of the ablation (4.6)              rewire
    in a trainer or harness                     adapters (verl, TRL), reward_rows, inspect_scorer
    what is refused                             validate, scores, errors
    beyond the paper                            retention_fit and preferences: retentions learned from preferences

Source: GEAR. Exact marginals without enumeration, their bounds and learned retentions are ours.
"""

from reprise.rubric import adapters, judges
from reprise.rubric.adapters import make_trl_reward, make_verl_reward
from reprise.rubric.aggregate import DEFAULT_RETENTION, METHODS, Aggregation, aggregate
from reprise.rubric.batch import INFERENCES, RULES, PackedProgram, compile_batch
from reprise.rubric.build import BuildStats, build_graph
from reprise.rubric.errors import ExactTooLarge, GraphError, RetentionError, RubricError, ScoreError
from reprise.rubric.farming import Audit, audit
from reprise.rubric.graph import Criterion, Edge, EdgeType, Role, RubricGraph
from reprise.rubric.judges import LocalJudge, OpenAIJudge, RuleJudge
from reprise.rubric.leakage import FCPReport, Scored, fcp_metrics
from reprise.rubric.retention_fit import fit_retention
from reprise.rubric.rewire import rewire_random, untype
from reprise.rubric.rollout_log import Rollout, read_log
from reprise.rubric.validate import Validation, normalise_verdict, project_edges

__all__ = [
    "DEFAULT_RETENTION",
    "INFERENCES",
    "METHODS",
    "RULES",
    "Aggregation",
    "Audit",
    "BuildStats",
    "Criterion",
    "Edge",
    "EdgeType",
    "ExactTooLarge",
    "FCPReport",
    "GraphError",
    "LocalJudge",
    "OpenAIJudge",
    "PackedProgram",
    "RetentionError",
    "Role",
    "Rollout",
    "RubricError",
    "RubricGraph",
    "RuleJudge",
    "ScoreError",
    "Scored",
    "Validation",
    "adapters",
    "aggregate",
    "audit",
    "build_graph",
    "compile_batch",
    "fcp_metrics",
    "fit_retention",
    "judges",
    "make_trl_reward",
    "make_verl_reward",
    "normalise_verdict",
    "project_edges",
    "read_log",
    "rewire_random",
    "untype",
]
