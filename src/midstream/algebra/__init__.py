"""What a query means: streams, windows, typed expressions, plans and their identity."""
