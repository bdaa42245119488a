"""The entries of a suite: models with their sweeps, judges, graders and limits."""
