"""A warning while a query runs, as soon as a large share of a stream's rows is late and dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from midstream.cli.output import Output, escape
from midstream.cli.sources import StreamSource

__all__ = ["LateRowsWarning"]

SHARE = 0.05
"""Above this share of late rows the user is warned."""


class LateRowsWarning:
    """Warns once for each stream, with the cause and the remedy."""

    def __init__(self, sources: Sequence[StreamSource], output: Output) -> None:
        self._sources = {source.name: source for source in sources}
        self._output = output
        self._warned: set[str] = set()

    def check(self, metrics: Mapping[str, Any]) -> None:
        """Warn about streams that have too many late rows so far."""
        for name, counts in metrics["streams"].items():
            if name not in self._warned and counts["late"] > SHARE * counts["rows"]:
                self._warned.add(name)
                self._output.note(escape(f"warning: {self._text(self._sources[name], counts)}"))

    def _text(self, source: StreamSource, counts: Mapping[str, int]) -> str:
        share = counts["late"] / counts["rows"]
        lateness = f"its lateness ({source.lateness})" if source.lateness else "a lateness of 0"
        text = (
            f'{share:.0%} of the rows of stream "{source.name}" so far were late and have been dropped '
            f"({counts['late']:,} of {counts['rows']:,}). They arrived after rows newer by more than {lateness}. "
            f"Increase the stream's lateness: --lateness {source.name}=..."
        )
        if source.is_file:
            equal = "by name" if source.read_by == "midstream" else "in any order"
            text += (
                f". Files are read in the order of their modification times, files with equal times {equal}: "
                "set their times in the order of their rows (touch), or read more files per batch "
                f"(--option {source.name}.maxFilesPerTrigger=...)"
            )
        return text + "."
