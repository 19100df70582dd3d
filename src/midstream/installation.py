"""How to install what is missing: with the command that fits how midstream itself was installed."""

from __future__ import annotations

import json
import sys
from importlib import metadata

__all__ = ["install_command"]


def install_command(*extras: str) -> str:
    """The pip command that adds these extras to this installation.

    A package that was installed from a directory or an archive remembers where that is (PEP 610); pip looks for any
    other one in its index.
    """
    requirement = f"midstream[{','.join(extras)}]"
    try:
        origin = metadata.distribution("midstream").read_text("direct_url.json")
        url = json.loads(origin)["url"] if origin else None
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        url = None
    return f'{sys.executable} -m pip install "{requirement}{f" @ {url}" if url else ""}"'
