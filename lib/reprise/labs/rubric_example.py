"""A rubric for an answer to a medical question, with every type of edge, and a response that farms it."""

from __future__ import annotations

import numpy as np

from reprise.rubric import Criterion, Edge, Role, RubricGraph

MEDICAL = RubricGraph(
    [
        Criterion("facts", 5, Role.FOUNDATION, "The facts are right"),
        Criterion("evidence", 4, Role.BONUS, "Cites evidence for them"),
        Criterion("conclusion", 3, Role.BONUS, "Draws a conclusion from it"),
        Criterion("red_flags", 3, Role.FOUNDATION, "Names the red flags"),
        Criterion("when_to_seek", 3, Role.BONUS, "Says when to seek help"),
        Criterion("advice", 1, Role.TRIGGER, "Gives clinical advice"),
        Criterion("no_caveat", -4, Role.PENALTY, "Advice without a caveat"),
        Criterion("tone", 2, Role.BONUS, "Kind and clear"),
    ],
    [
        Edge("facts", "evidence", "strong"),
        Edge("evidence", "conclusion", "strong"),
        Edge("red_flags", "when_to_seek", "weak"),
        Edge("facts", "when_to_seek", "weak"),
        Edge("advice", "no_caveat", "activation"),
    ],
)
# fluent, well sourced, wrong: and the judge sees a missing caveat although no advice was given
FARMED = np.array([0.2, 0.9, 0.8, 0.7, 0.9, 0.1, 0.8, 0.95])
