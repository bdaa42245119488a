"""Sends a run to an experiment tracker, from its records alone: MLflow, Weights & Biases, Vertex AI Experiments.

``content`` has what is sent, and each tracker's module sends it by that tracker's client, which is an extra and is
imported there only.
"""
