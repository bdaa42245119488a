"""Images, videos and files on the web: reading, checking and describing them.

Imports only ``bounds``, ``errors`` and ``types``; all higher layers may import it.
"""
