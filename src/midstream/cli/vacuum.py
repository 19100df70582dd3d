"""``midstream vacuum``: remove what failed attempts left in a Delta table (see ``midstream.delta.orphans``)."""

from __future__ import annotations

from midstream.cli.failures import DONE
from midstream.cli.output import Output, escape
from midstream.cli.sinks import read_sink
from midstream.errors import PathProblem

__all__ = ["vacuum"]

SHOWN = 20
"""At most so many names are printed."""


def vacuum(text: str, storage_options: dict[str, str], dry_run: bool, with_backfills: bool, output: Output) -> int:
    """Remove orphans from a table, or list them; a query may write to it meanwhile."""
    from midstream.delta.location import TableLocation
    from midstream.delta.orphans import find_orphans, remove_orphans
    from midstream.delta.table import open_table

    sink = read_sink(text if text.startswith("delta:") else f"delta:{text}", [])
    location = TableLocation.of(sink.path or "", storage_options)
    table = open_table(location)
    if table is None:
        raise PathProblem(f"there is no Delta table {location.address}")
    names = find_orphans(table, with_backfills) if dry_run else remove_orphans(table, location, with_backfills)
    what = "file" if len(names) == 1 else "files"
    output.say(f"{len(names):,} {what} of failed attempts {'found' if dry_run else 'removed'}")
    for name in names[:SHOWN]:
        output.say(f"  {escape(name)}")
    if len(names) > SHOWN:
        output.say(f"  and {len(names) - SHOWN:,} more")
    output.document({"table": location.address, "files": names, "removed": not dry_run})
    return DONE
