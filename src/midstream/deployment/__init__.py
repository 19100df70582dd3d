"""Queries deployed over a topology of sensors, edge nodes and cloud, and redeployed incrementally while they run."""
