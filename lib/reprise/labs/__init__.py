"""Worlds, tiny models and seeded experiments: what the exact algorithms are exercised on."""
