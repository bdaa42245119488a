"""Images, videos and files on the web: reading, checking and describing them.

Imports ``types`` and ``errors`` only; everything above may import it.
"""
