"""Registry entries for tests: one that is right, changed field by field."""

from pathlib import Path

import yaml

from reprise.nb.claims import Claim

RIGHT = {
    "id": "fp4.cache.per_token",
    "what": "guidance kept per generated token",
    "source": "section 3.2",
    "kind": "exact",
    "reported": "7.5",
    "unit": "KB",
    "predicate": "rounds_to",
    "notebook": "fp4/03_guidance_cost",
}
# an entry of each kind that needs more than another predicate
REDUCED = {"kind": "reduced", "placebo": "shuffled labels", "predicate": "less", "bound": 0.15}
INTERVAL = {**REDUCED, "predicate": "interval", "side": "less", "preset": "full"}
RECORDED = {"kind": "recorded", "predicate": "none", "explain": "needs a cluster"}
MEASURED = {"kind": "measured", "predicate": "none"}


def entry(**fields) -> dict:
    """The right entry with some fields changed; None removes one."""
    return {name: value for name, value in {**RIGHT, **fields}.items() if value is not None}


def claim(**fields) -> Claim:
    """The entry as a claim."""
    return Claim.model_validate(entry(**fields))


def document(*entries: dict, system: str = "fp4", **more) -> dict:
    """A registry file."""
    return {"system": system, "title": "A paper", "claims": list(entries), **more}


def write_registry(root: Path, *entries: dict, system: str = "fp4", **more) -> Path:
    """Write data/claims/<system>.yaml."""
    path = root / "data" / "claims" / f"{system}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document(*entries, system=system, **more), sort_keys=False))
    return path
