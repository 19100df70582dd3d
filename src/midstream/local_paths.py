"""Paths on this machine, as users give them: text, a ``Path``, or a URL with the scheme ``file``."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from midstream.errors import BadOption

__all__ = ["absolute_path"]

_FILE = re.compile(r"file:(?://(?P<host>[^/]*))?(?P<path>/.*)?", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
"""How a URL begins whose slashes were merged, as ``pathlib.Path`` does."""


def absolute_path(path: str | os.PathLike[str], what: str) -> str:
    """The absolute path; a URL with another scheme stays as it is. ``what`` says in messages what is there.

    >>> absolute_path("file:///data/my%20table", "a table"), absolute_path("s3://bucket/t", "a table")
    ('/data/my table', 's3://bucket/t')
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise BadOption(f"the path of {what} is {path!r}", hint="Give a directory, or a URL such as s3://bucket/t.")
    if text.startswith("file:"):
        url = _FILE.fullmatch(text)
        if url is None or not url["path"] or url["host"] not in (None, "", "localhost"):
            raise BadOption(
                f'cannot read the path "{text}" of {what}', hint="Write file:///directory, or the path alone."
            )
        text = unquote(url["path"])
    elif _SCHEME.match(text):
        raise BadOption(
            f'cannot read the path "{text}" of {what}',
            detail="It looks like a URL with one slash; a Path makes this of a URL.",
            hint="Give a URL as text, with two slashes: s3://bucket/t.",
        )
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))
