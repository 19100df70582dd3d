"""The order of joins: its text, the join graph it is read from, and the plans it gives."""
