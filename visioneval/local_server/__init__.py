"""What every server of a page on this machine shares: the guard of its requests, its address and its start.

Imports only errors and starlette, so that the label page and the viewer can both stand on it.
"""
