"""A ranking of model runs: its texts, and as an HTML page."""
