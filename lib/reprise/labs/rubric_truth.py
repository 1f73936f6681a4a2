"""What a response is really worth: utilities of the events themselves under the true graph, no judge involved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprise.labs.rubric_world import World
from reprise.rubric.batch import compile_batch

# exponents on the true retentions: with 0 the plain sum is the truth, 1 is the typed truth, large ones come near strict
SWEEP = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
STRICT = dict.fromkeys(("weak", "strong", "activation"), 0.0)


class Truth:
    """Utilities of responses to the prompts of some rubric sets.

    Args:
        worlds: the rubric sets, equally many prompts each.
        policies: repetitions of each set's prompts in a row of lanes.
    """

    def __init__(self, worlds: Sequence[World], policies: int):
        graphs = [graph for world in worlds for _ in range(policies) for graph in world.graphs]
        self.program = compile_batch(graphs, inference="exact")
        self.size = np.abs([graph.weights for graph in graphs])
        self.positive = np.maximum([graph.weights for graph in graphs], 0).sum(-1)

    def measure(self, events: np.ndarray, sweep: bool = False) -> dict[str, np.ndarray]:
        """Means over samples, one a lane, in 100 x utility.

        Args:
            events: [methods x sets x policies x prompts, criteria, samples] bool; which criteria a response meets by
                itself.
            sweep: also the utility under every truth of SWEEP.

        Returns:
            typed: expected utility of the events under the true graph with the retentions of its edge types.
            strict: the same with retention 0: a criterion counts only if all that it depends on, however remotely, is
                met.
            plain: every met criterion counts in full, as a rubric without a graph would score it.
            leaked: share of the rubric's positive points that met criteria hold without their prerequisites,
                Σ |w| (met - strictly licensed) / Σ_{w>0} w.
            truth_<g>: with retention λ^g, for each g of SWEEP.
        """
        methods = [self._measure(part, sweep) for part in events.reshape(-1, len(self.size), *events.shape[1:])]
        return {name: np.concatenate([method[name] for method in methods]) for name in methods[0]}

    def _measure(self, events: np.ndarray, sweep: bool) -> dict[str, np.ndarray]:
        scores = events.astype(float)

        def utility(**how):
            marginals = self.program.marginals(scores.reshape(-1, scores.shape[-1]), **how)
            return 100 * self.program.reward(marginals).mean(-1), marginals.reshape(scores.shape)

        typed, _ = utility()
        strict, licensed = utility(retention=STRICT)
        plain, _ = utility(gamma=0.0)
        leaked = 100 * ((scores - licensed).mean(-1) * self.size).sum(-1) / self.positive
        found = {"typed": typed, "strict": strict, "plain": plain, "leaked": leaked}
        return found | ({f"truth_{g:g}": utility(gamma=g)[0] for g in SWEEP} if sweep else {})
