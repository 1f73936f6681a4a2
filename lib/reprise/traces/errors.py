"""Errors of the log readers: each names the file, the place in it, the value, and what was expected."""

from reprise.errors import RepriseError


class TraceError(RepriseError):
    """A log that cannot be read: no such format, several that fit, or a record that is not what its format says."""
