"""Agreement beyond chance, and rates corrected with labels."""
