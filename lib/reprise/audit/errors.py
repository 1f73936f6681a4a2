"""Errors of the auditor: each names the record or field, the value, and what was expected."""

from reprise.errors import RepriseError


class AuditError(RepriseError):
    """Base class of everything `reprise.audit` refuses."""
