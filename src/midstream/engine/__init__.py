"""Columnar pieces: expressions, operators and their states. No plan as a whole, no clock, no I/O, no Spark."""
