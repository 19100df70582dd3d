"""The checkpoint of a stream that is written somewhere: without one, nobody knows after a crash what was written."""

from __future__ import annotations

import os

from midstream.errors import BadOption

__all__ = ["checked_checkpoint"]


def checked_checkpoint(checkpoint: str | os.PathLike[str] | None) -> str:
    """The checkpoint as Spark takes it."""
    if not isinstance(checkpoint, str | os.PathLike) or not os.fspath(checkpoint):
        raise BadOption(
            "a stream that is written to a sink needs a checkpoint",
            detail="By its checkpoint a query knows after a crash what it has written.",
            hint="Give checkpoint=..., a directory for Spark.",
        )
    return os.fspath(checkpoint)
