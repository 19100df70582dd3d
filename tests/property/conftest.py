"""The property tests try as many examples as ``tests/examples.py`` says."""

from hypothesis import settings

from tests.examples import random_examples

settings.register_profile("midstream", random_examples())
settings.load_profile("midstream")
