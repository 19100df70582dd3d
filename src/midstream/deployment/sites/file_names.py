"""Names of nodes, streams, queries and sites as names of files: letters and digits stay, other bytes become ``~xx``.

Neither Spark nor a file system gives these names a meaning: no ``/``, ``=``, ``%`` or pattern, no leading ``_`` or
``.``.

>>> file_name("edge 1"), name_of_file("edge~201")
('edge~201', 'edge 1')
>>> file_name("_hidden"), file_name("a-b_c.d")
('~5fhidden', 'a-b_c.d')

Names that make no good files are refused: too long ones, those that differ only by case (not every file system tells
them apart), and names of several lines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from midstream.deployment.topology.topology import check_name
from midstream.errors import BadTopology

__all__ = ["check_file_names", "file_name", "name_of_file"]

_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_NEVER_FIRST = frozenset(b"_.")
_NOT_IN_NAMES = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of surrogate pairs, separators of lines and paragraphs."""
LONGEST = 180
"""Bytes of a file's name, so that numbers and endings have room below the 255 that file systems allow."""


def file_name(name: str) -> str:
    """The name of a file for something of this name."""
    return "".join(
        chr(byte) if byte in _KEPT and not (place == 0 and byte in _NEVER_FIRST) else f"~{byte:02x}"
        for place, byte in enumerate(name.encode())
    )


def name_of_file(file: str) -> str:
    """What :func:`file_name` gave this for."""
    return re.sub(rb"~([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), file.encode()).decode()


def check_file_names(what: str, names: Iterable[object], others: Iterable[str] = ()) -> None:
    """Refuse names of nodes, streams, queries or sites that make no good files, alone or beside others that exist.

    >>> check_file_names("a node", ["edge", "Edge"])
    Traceback (most recent call last):
    midstream.errors.BadTopology: [M6001] the names "edge" and "Edge" differ only by case
      hint: They are names of files, too. Give one of them another name.
    """
    seen = {other.casefold(): other for other in others}
    for name in names:
        check_name(what, name)
        assert isinstance(name, str)
        if any(unicodedata.category(character) in _NOT_IN_NAMES for character in name):
            hint = "Names have no line breaks and no other control characters."
            raise BadTopology(f"the name of {what} is {name!r}", hint=hint)
        if len(file_name(name)) > LONGEST:
            raise BadTopology(
                f'the name of {what} is too long: "{name}"',
                detail=f"As the name of a file it has {len(file_name(name))} bytes.",
                hint=f"{LONGEST} are possible: letters and digits take one each, other characters three to twelve.",
            )
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            hint = "They are names of files, too. Give one of them another name."
            raise BadTopology(f'the names "{other}" and "{name}" differ only by case', hint=hint)
