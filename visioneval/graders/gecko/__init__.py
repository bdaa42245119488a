"""The Gecko grader: questions made from a prompt, answered from an output, and their score."""
