"""The `files` provider: existing images and videos."""
