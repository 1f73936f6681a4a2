"""What AgentForesight and the card of its released data set say about the corpus AFTraj-2K."""

from __future__ import annotations

# the paper, section on the corpus: safe, unsafe, all
PAPER = {"safe": 1158, "unsafe": 1114, "all": 2272}
# the card of the released data set: domain -> (safe, unsafe)
CARD = {"Math": (396, 397), "Coding": (361, 247), "Agentic": (405, 470)}
TEST_FAMILIES = {"Coding": 91, "Math": 116, "Agentic": 125}
MEAN_TURNS = 11.5
# the figure of error positions, in words
POSITIONS = {"math": "spread, with a long tail", "coding": "in the later half", "search": "early"}
