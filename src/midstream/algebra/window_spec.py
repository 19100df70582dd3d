"""Windows: which validity a row's event time gives it, and when the state it needs can be dropped.

Time is int64 ticks: microseconds for timestamp columns, the number itself for integer event times. A row with
event time t is valid on the half-open interval ``[from, to)``:

    [RANGE w]           t ├──────────── w ────────────┤ t + w + 1      two rows meet if |t − t'| ≤ w
    [NOW]               t ├┤ t + 1                                     w = 0
    [RANGE UNBOUNDED]   t ├──────────────────────────────────────▶     never ends
    [RANGE w SLIDE s]   ⌈t/s⌉·s ├──────────┤ ⌈(t + w)/s⌉·s             w = s is a tumbling window

>>> WindowSpec(width=10).validity(5)
(5, 16)
>>> WindowSpec(width=10, slide=10).validity(5)
(10, 20)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from midstream.errors import BadWindow

__all__ = ["BEGINNING", "FARTHEST", "NEVER", "WindowSpec"]

BEGINNING = -(2**63)
"""The watermark before the first row."""

NEVER = 2**63 - 1
"""The end of a validity that never ends, and the watermark after the last row."""

FARTHEST = 2**62
"""How far from tick 0 an event time may be. Twice as far is still within int64, so no step of a slide overflows."""


@dataclass(frozen=True)
class WindowSpec:
    """A window over one stream. ``width`` None never ends; ``declared`` says whether the text had one."""

    width: int | None
    slide: int | None = None
    declared: bool = True

    def __post_init__(self) -> None:
        if self.width is not None and not 0 <= self.width < NEVER:
            raise BadWindow(f"a window cannot be {self.width} ticks wide", hint="Give a width of 0 or more.")
        if self.slide is not None and not (self.width is not None and 0 < self.slide < NEVER):
            raise BadWindow(
                f"a window cannot slide by {self.slide} ticks", hint="Give a slide of 1 or more, and a width."
            )

    @property
    def is_bounded(self) -> bool:
        return self.width is not None

    @property
    def longest(self) -> int:
        """No validity this window gives is longer."""
        if self.width is None:
            return NEVER
        if self.slide is None:
            return self.width + 1
        return min(NEVER, -(-self.width // self.slide) * self.slide)

    def validity(self, time: int) -> tuple[int, int]:
        """The validity of one row; empty (from = to) where a slide passes over it."""
        if self.width is None:
            return time, NEVER
        if self.slide is None:
            return time, min(NEVER, time + self.width + 1)
        low = -(-time // self.slide) * self.slide
        high = -(-(time + self.width) // self.slide) * self.slide
        return min(NEVER, low), min(NEVER, high)

    def frontier(self, watermark: int) -> int:
        """No row at or after the watermark becomes valid earlier."""
        if self.slide is None or watermark == NEVER:
            return watermark
        return min(NEVER, -(-watermark // self.slide) * self.slide)

    def text(self, length: Callable[[int], str] = str) -> str:
        """The window as query text; ``length`` writes so many ticks (see ``TimeDomain``)."""
        if self.width is None:
            return "[RANGE UNBOUNDED]" if self.declared else ""
        if self.slide is not None:
            return f"[RANGE {length(self.width)} SLIDE {length(self.slide)}]"
        return f"[RANGE {length(self.width)}]" if self.width else "[NOW]"
