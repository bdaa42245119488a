"""The mock provider: plain layouts that are rendered locally, with or without a planted flaw."""
