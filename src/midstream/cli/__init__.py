"""The command line: ``midstream run``, ``explain``, ``migrate``, ``status``, ``verify``, ``bench`` and ``demo``.

Nothing is decided here that the library does not decide: commands read what the user wrote, call the library, and say
what came of it, to people or (``--json``) to machines.
"""
