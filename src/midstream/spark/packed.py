"""What Spark passes to cells: rows with the columns :data:`PACKED`, of three kinds."""

from __future__ import annotations

__all__ = ["COMMAND", "FILE", "PACKED", "ROWS"]

PACKED = "cell long, kind string, place long, blob binary"
"""The columns; ``place`` orders the rows of a cell and micro-batch (``runtime/pack_place``)."""
ROWS = "rows"
"""The blob is a pack."""
FILE = "file"
"""The blob is the path of a file, whose rows the cell reads and packs itself."""
COMMAND = "command"
"""The blob is a command, and ``place`` is its number."""
