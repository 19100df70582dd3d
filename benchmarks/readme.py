"""Parts of the README that benchmarks write themselves: tables, between two lines that mark their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent / "README.md"


@dataclass(frozen=True)
class Place:
    """Where a text stands that a command writes: between two lines of a README."""

    name: str
    command: str
    readme: Path = README

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: written by {self.command} -->\n"

    @property
    def end(self) -> str:
        return f"<!-- end of {self.name} -->\n"

    def write(self, text: str) -> None:
        """Put the text there; all else stays."""
        before, begin, rest = self.readme.read_text().partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not (begin and end):
            raise ValueError(f"{self.readme} has no place for the text: {self.begin.strip()} … {self.end.strip()}")
        self.readme.write_text(before + begin + text + end + after)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; what would end a cell is escaped."""
    lines = [list(headings), ["---"] * len(headings), *(list(row) for row in rows)]
    return "".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
