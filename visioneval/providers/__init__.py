"""What generates, edits and judges: one file or package for each provider, behind the protocols in ``base``.

The own module of a package has the provider's options, what its calls cost and checks of them, and imports the suite
and below only. ``questions.py`` has which images a judge accepts, ``error_replies.py`` the words of errors and how long
to wait, ``refusals.py`` those of refusals, ``ended_models.py`` the models that a provider has ended, and
``suite/remote.py`` the variables of API keys.

A new one also has a name in ``PROVIDERS`` or ``JUDGES`` of ``plugins.py``, its wire format in ``tests/fake_api``, and a
class in ``tests/providers/test_conformance.py``.
"""
