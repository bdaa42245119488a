"""The rubric grader: scores that a judge gives against declared metrics."""
