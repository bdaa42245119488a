"""Datasets: from files of rows to raw cases and pinned questions, each with its file and line.

``tables`` reads a file, ``entry`` a dataset of a suite with its joins and filters. ``cases`` and ``grouping`` turn rows
into raw cases. Of ``loading``, it imports only messages, paths, documents and the reader of YAML.
"""
