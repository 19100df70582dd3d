"""Lengths of time as query text: the units there are, and a length in the largest of them that fits.

>>> duration_text(600_000_000), duration_text(1_000_000), duration_text(90_000_000)
('10 MINUTES', '1 SECOND', '90 SECONDS')
"""

from __future__ import annotations

__all__ = ["UNIT_MICROSECONDS", "duration_text"]

UNIT_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def duration_text(microseconds: int) -> str:
    """A whole number and its unit; equal lengths have equal texts."""
    if not microseconds:
        return "0 SECONDS"
    unit = max(
        (u for u in UNIT_MICROSECONDS if microseconds % UNIT_MICROSECONDS[u] == 0), key=UNIT_MICROSECONDS.__getitem__
    )
    number = microseconds // UNIT_MICROSECONDS[unit]
    return f"{number} {unit}" if number == 1 else f"{number} {unit}S"
