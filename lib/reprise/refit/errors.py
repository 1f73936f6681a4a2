"""What the delta codec refuses, by kind."""

from reprise.errors import RepriseError


class RefitSchemaError(RepriseError):
    """Two sides do not describe the same tensors: a missing name, another shape, another or unknown dtype."""


class PayloadError(RepriseError):
    """A payload that is malformed, altered, over a limit or inconsistent with itself; nothing was written."""


class StaleBaseError(PayloadError):
    """The target does not hold the bits the payload starts from; nothing was written."""
