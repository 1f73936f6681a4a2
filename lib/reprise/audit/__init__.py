"""Auditing agents while they run: verdicts on prefixes, metrics, training losses, guarantees (AgentForesight)."""
