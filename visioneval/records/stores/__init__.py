"""Runs in object stores (``s3://``, ``gs://``): local copies to read, working folders to write, and claims of writers.

A folder of runs at a URL is represented by a folder on this machine, the *copies*: ``locations`` knows which is which.
Readers bring a copy up to date (``lookup``) and then read files, as they do for a local run. A writer works in a folder
of its own and sends what it wrote (``publishing``). Nothing here runs for a local folder of runs.
"""
