"""Where the stages of queries run, and what nodes must be told when that changes. Pure planning: nothing runs here."""
