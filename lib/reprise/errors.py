"""The base of every error Reprise raises on purpose."""


class RepriseError(ValueError):
    """Bad input or a refused operation; the message names the field, the value and what was expected."""
