"""Damage and harmless changes as pure functions of pixels or bytes, a strength and a random generator."""
