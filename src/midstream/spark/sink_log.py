"""The log of Spark's file sink names the files of committed micro-batches; others belong to attempts that failed."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["committed_files"]


def committed_files(folder: Path) -> list[Path]:
    """The files of a sink that its log names, in order of their names; none without a log."""
    log = folder / "_spark_metadata"
    files = set()
    for entry in sorted(log.iterdir()) if log.is_dir() else []:
        if not entry.name.startswith("."):
            for line in entry.read_text().splitlines()[1:]:
                files.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
    return sorted(files)
