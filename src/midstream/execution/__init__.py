"""A plan at work: executors, from a compiled tree of operators to a migration between two of them."""
