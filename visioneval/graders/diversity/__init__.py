"""The diversity of the samples of one case on one model run."""
