"""Rates and gates of a probe: what graders catch of planted damage, and how often they fail harmless changes."""
