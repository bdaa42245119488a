"""All runs of a folder in a browser: an index with trends, reports and comparisons on request, labels; or as files.

``listing`` and ``trends`` know what the index shows, ``index`` renders it, ``reports`` and ``comparisons`` render one
page, ``server`` and ``serve`` make it a local server, and ``site`` a static one. Reads runs like ``report`` and
``label``, on which it stands, and writes nothing into them but labels.
"""
