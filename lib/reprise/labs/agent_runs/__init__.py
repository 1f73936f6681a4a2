"""Executable multi-agent systems whose runs can be taken up again from any turn, and corpora made of them."""

from reprise.labs.agent_runs.coding_env import CodeEnv
from reprise.labs.agent_runs.corpus import Corpus, CorpusError, build_corpus
from reprise.labs.agent_runs.math_env import MathEnv
from reprise.labs.agent_runs.search_env import SearchEnv

__all__ = ["CodeEnv", "Corpus", "CorpusError", "MathEnv", "SearchEnv", "build_corpus"]
