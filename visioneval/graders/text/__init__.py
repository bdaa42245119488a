"""The text grader: exact copy, read by local OCR or by a judge."""
