"""Statistics of ranks: correlation, Bradley-Terry strengths and intervals of ranks."""
