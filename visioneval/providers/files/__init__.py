"""The `files` provider: images and videos that exist already."""
