"""The video grader: duration, size, frame rate, sound, and frozen, black or flickering frames."""
