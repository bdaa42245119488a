"""Datasets: from files of rows to raw cases and pinned questions, each with its file and line.

``tables`` reads a file, ``cells`` the data in its texts, ``rows`` joins and filters, ``entry`` a dataset of a suite.
``cases`` and ``grouping`` turn rows into raw cases.
"""
