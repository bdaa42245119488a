"""Pages on this machine: the label page, and all runs of a folder, which ``site`` writes as files, too.

Every page stands on one server and one guard. Reads runs like ``report``, and writes nothing into them but labels.
"""
