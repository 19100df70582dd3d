"""Replacing the plan of a running query: one strategy per file, all behind ``strategy.Strategy``."""
