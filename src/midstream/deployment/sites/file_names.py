"""Names of nodes, streams, queries and sites as names of files: letters and digits stay, other bytes become ``~xx``.

Neither Spark nor a file system gives these names a meaning: no ``/``, ``=``, ``%`` or pattern, no leading ``_`` or
``.``.

>>> file_name("edge 1"), name_of_file("edge~201")
('edge~201', 'edge 1')
>>> file_name("_hidden"), file_name("a-b_c.d")
('~5fhidden', 'a-b_c.d')
"""

from __future__ import annotations

import re

__all__ = ["file_name", "name_of_file"]

_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_NEVER_FIRST = frozenset(b"_.")


def file_name(name: str) -> str:
    """The name of a file for something of this name."""
    return "".join(
        chr(byte) if byte in _KEPT and not (place == 0 and byte in _NEVER_FIRST) else f"~{byte:02x}"
        for place, byte in enumerate(name.encode())
    )


def name_of_file(file: str) -> str:
    """What :func:`file_name` gave this for."""
    return re.sub(rb"~([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), file.encode()).decode()
