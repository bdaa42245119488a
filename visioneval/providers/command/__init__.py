"""The `command` provider: a custom program, started once per image."""
