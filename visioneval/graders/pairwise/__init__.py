"""The pairwise grader: which of two outputs a judge prefers."""
