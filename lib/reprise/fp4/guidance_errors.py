"""What guidance refuses, by kind. None of these is ever answered by rounding to nearest instead."""

from __future__ import annotations

from reprise.fp4.errors import Fp4Error


class GuidanceError(Fp4Error):
    """Base of everything that is wrong with guidance or the file it lies in."""


class GuidanceMissing(GuidanceError):
    """Guidance is asked for that is not there."""


class MissingTrajectory(GuidanceMissing):
    """No record of that trajectory."""


class MissingSite(GuidanceMissing):
    """A site within the guided layers that the record does not hold."""


class LayerNotGuided(GuidanceMissing):
    """A site outside the layers that the record guides."""


class MissingRoutes(GuidanceMissing):
    """Hidden activations are guided without the experts they belong to, so that slots would not correspond."""


class GuidanceMismatch(GuidanceError):
    """Guidance that belongs to something else."""


class TokenMismatch(GuidanceMismatch):
    """A record of other token ids, of another number of tokens, or a token range outside it."""


class GuidanceShapeMismatch(GuidanceMismatch):
    """A site of another shape or dtype than declared, or than the activations it should guide."""


class FormatMismatch(GuidanceMismatch):
    """A record of another four-bit format."""


class BitsMismatch(GuidanceMismatch):
    """A record that keeps another number of bits a code."""


class ModelMismatch(GuidanceMismatch):
    """A record of another model."""


class PolicyVersionMismatch(GuidanceMismatch):
    """A record of a policy that is too old, or newer than the one being trained."""


class GuidanceDamaged(GuidanceError):
    """A file that cannot be trusted."""


class NotGuidance(GuidanceDamaged):
    """Something else than a file that starts as a guidance file does."""


class UnsupportedVersion(GuidanceDamaged):
    """A guidance file of a layout this code does not read."""


class TruncatedGuidance(GuidanceDamaged):
    """A file of another length than it declares."""


class HeaderDamaged(GuidanceDamaged):
    """A header whose checksum or content is wrong."""


class BlockDamaged(GuidanceDamaged):
    """A block of tokens of one site whose checksum is wrong."""
