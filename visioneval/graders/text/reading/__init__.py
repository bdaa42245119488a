"""Reads the text of an image: OCR, its models, the order of lines, and what single glyphs show."""
