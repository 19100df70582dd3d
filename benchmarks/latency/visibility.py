"""When the files of a sink became visible to its readers. Needs nothing but Python.

What makes a file visible is renamed, or linked, to where it is found: an entry of a log, or the file itself. That
changes the time of its inode (``ctime``), so nobody has to watch while results are measured.

- A Delta table: the files that an entry of ``_delta_log`` adds.
- Spark's file sink: the files that an entry of ``_spark_metadata`` names. Every tenth entry repeats all earlier ones.
- Flink's file sink: files that are not hidden any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["commits", "visible_files"]

_ONE_COMMIT_SECONDS = 0.05
"""Files that become visible within this time are of one commit: Flink renames them one by one."""


def visible_files(output: Path) -> dict[Path, float]:
    """The files of a sink that readers see, each with when they could see it first, in that order."""
    if (output / "_delta_log").is_dir():
        found = _delta(output)
    elif (output / "_spark_metadata").is_dir():
        found = _spark(output)
    else:
        found = _flink(output)
    seen: dict[Path, float] = {}
    for path, visible in found:
        seen.setdefault(path, visible)
    return dict(sorted(seen.items(), key=lambda item: item[1]))


def commits(visible: Mapping[Path, float]) -> list[float]:
    """When something became visible."""
    times: list[float] = []
    for time in sorted(visible.values()):
        if not times or time - times[-1] > _ONE_COMMIT_SECONDS:
            times.append(time)
    return times


def _delta(output: Path) -> Iterator[tuple[Path, float]]:
    for entry in sorted((output / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                yield output / unquote(added["path"]), entry.stat().st_ctime


def _spark(output: Path) -> Iterator[tuple[Path, float]]:
    entries = [entry for entry in (output / "_spark_metadata").iterdir() if entry.stem.isdigit()]
    for entry in sorted(entries, key=lambda entry: int(entry.stem)):
        for line in entry.read_text().splitlines()[1:]:
            yield Path(unquote(urlsplit(json.loads(line)["path"]).path)), entry.stat().st_ctime


def _flink(output: Path) -> Iterator[tuple[Path, float]]:
    for path in output.glob("*") if output.is_dir() else ():
        if path.is_file() and not path.name.startswith((".", "_")):
            yield path, path.stat().st_ctime
