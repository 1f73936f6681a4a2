"""A synthetic suite of 656 cases over six domains and five protocols, each admitted only after being played."""

from reprise.labs.evidence_suite.admit import validate_case
from reprise.labs.evidence_suite.generate import generate_suite, make_case
from reprise.labs.evidence_suite.mutate import MUTATIONS, mutate
from reprise.labs.evidence_suite.reference import reference, topological_orders

__all__ = ["MUTATIONS", "generate_suite", "make_case", "mutate", "reference", "topological_orders", "validate_case"]
