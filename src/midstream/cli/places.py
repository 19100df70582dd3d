"""Paths of sources and sinks: on this machine, or on a file system that only Spark can access."""

from __future__ import annotations

__all__ = ["is_remote"]


def is_remote(path: str) -> bool:
    """Whether only Spark can access the path: anything with a scheme, even ``file:``."""
    return "://" in path or path.startswith(("hdfs:", "file:"))
