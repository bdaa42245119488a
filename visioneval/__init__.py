"""An eval runner for image generation and image editing, driven by YAML suites."""

__version__ = "0.1.0"
