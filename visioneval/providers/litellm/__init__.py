"""Models behind LiteLLM: images, edits and judges.

LiteLLM runs in a process of its own (``worker``), whose environment holds only the variables that an entry names: it
reads keys and addresses from its environment. ``config`` does not import it.
"""
