"""The properties grader: the file itself, its size, format and transparency."""
