"""How to install missing packages: the command that matches how midstream itself was installed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from importlib import metadata

from midstream.errors import PackageMissing

__all__ = ["install_command", "needs_extra"]


def install_command(*extras: str) -> str:
    """The pip command that adds these extras to this installation.

    A package that was installed from a directory or an archive records its location (PEP 610); pip looks up any other
    one in its index.
    """
    requirement = f"midstream[{','.join(extras)}]"
    try:
        origin = metadata.distribution("midstream").read_text("direct_url.json")
        url = json.loads(origin)["url"] if origin else None
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        url = None
    return f'{sys.executable} -m pip install "{requirement}{f" @ {url}" if url else ""}"'


@contextlib.contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Wraps imports that need the packages of an extra: the error states what to install if they are missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise PackageMissing(
            f"{what} is not installed: {missing}", hint=f"Install it with {install_command(extra)}."
        ) from None
