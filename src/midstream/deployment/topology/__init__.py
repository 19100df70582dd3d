"""The topology, what can happen to it, and its files."""
