"""The `command` provider: a program of the user's own, started once per image."""
