"""The same examples in every run.

Hypothesis would also draw constants from the modules that happen to be loaded, and so depend on which tests the same
process has run before.
"""

from hypothesis.internal.conjecture import providers

if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants
