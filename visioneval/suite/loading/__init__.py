"""From a YAML file to a resolved suite: positions, files, and datasets.

``tables`` reads a file of rows, ``cells`` the data in its texts, ``rows`` joins and filters, ``datasets`` a dataset of
a suite. ``row_cases`` turns rows into raw cases, and ``gather`` puts all cases together.
"""
