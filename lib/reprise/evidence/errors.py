"""Errors of the evidence checker: each names the case or step, the field, the value and what was expected."""

from reprise.errors import RepriseError


class EvidenceError(RepriseError):
    """Base class of everything `reprise.evidence` refuses."""


class CaseError(EvidenceError):
    """A case that cannot be judged: a cycle, a dangling reference, a requirement without a way to meet it."""


class TrajectoryError(EvidenceError):
    """A recorded run that cannot have happened: sequence gaps, versions nobody produced, facts that do not replay."""


class MetricsError(EvidenceError):
    """Verdict rows that cannot be averaged: duplicates, unequal case sets, an unknown protocol."""
