"""A case: its prompt, inputs, questions and existing outputs."""
