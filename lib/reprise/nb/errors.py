"""What can go wrong on the notebook side. Errors a caller can fix by other arguments exit with code 2."""

from reprise.errors import RepriseError


class CheckoutNotFound(RepriseError):
    """No folder holding data/claims was found; the notebook side needs a checkout, not only the installed package."""


class UnknownNotebook(RepriseError):
    """No notebook has this name."""

    exit_code = 2


class UnknownParameter(RepriseError):
    """The notebook's parameters cell does not declare this name."""

    exit_code = 2


class BadPreset(RepriseError):
    """presets.yaml, or a parameter value, does not fit the notebook it names."""

    exit_code = 2


class PresetUnavailable(RepriseError):
    """This machine cannot run the preset."""

    exit_code = 2


class BadRegistry(RepriseError):
    """data/claims holds entries that cannot be used; the message lists all of them."""

    exit_code = 2


class UnknownClaim(RepriseError):
    """No claim has this id, or it belongs to another notebook."""


class ClaimNotChecked(RepriseError):
    """A notebook ended without checking a claim assigned to it, or checked it without what the claim demands."""


class VerdictDisagrees(RepriseError):
    """A verdict is not the one its claim expects: a claim that starts to hold is as suspicious as one that stops."""


class NotebookRuleBroken(RepriseError):
    """A committed notebook breaks a rule that keeps its outputs comparable on another machine."""
