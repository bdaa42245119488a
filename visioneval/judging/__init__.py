"""How any grader asks a judge: attachments, crops, votes, and reading the reply.

Imports the protocols of providers and below; graders import it.
"""
