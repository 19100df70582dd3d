"""What operators remember: rows, tuples sorted by key, totals, and entries that wait for their time."""
