"""The alignment grader: the share of a prompt that an output meets, requirement by requirement."""
