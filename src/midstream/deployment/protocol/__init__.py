"""Nodes and coordinator as state machines: what they send each other, and what they store."""
