"""What each scalar function and cast computes, one file per kind of value."""
