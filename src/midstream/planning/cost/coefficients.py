"""Seconds per step: what the work of joins consists of, and how long each kind of step takes on a machine."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from midstream.errors import BadOption

__all__ = ["CostCoefficients", "finite_number", "shown_number"]

_MOST_SECONDS = 1e6
"""What one step may take at most; costs of plans stay far from what a float cannot express."""


class CostCoefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds for one step of each kind.

    The defaults were measured on an AMD EPYC with 2 shared cores; ``adaptation.calibrate()`` measures them where it
    runs. For the order of plans only their ratios matter.
    """

    operator: float = 200e-6
    """One operator in one push, whatever it does."""
    tuple_in: float = 60e-9
    """One tuple that enters a join: it is sorted, looked up on the other side, and inserted."""
    word_in: float = 6e-9
    """One word of such a tuple, which is moved and merged: two for its validity, one for each row it is made of."""
    tuple_out: float = 8e-9
    """One tuple that a join produces."""
    word_out: float = 2e-9
    """One word of such a tuple."""
    probe: float = 30e-9
    """One tuple of a multi-way join that visits one more input: it is sorted and looked up there, not inserted."""
    candidate: float = 4e-9
    """One pair of tuples whose condition is evaluated because no key finds it."""
    row: float = 100e-9
    """One row in an operator that works on keys with slots: distinct, aggregate, difference."""

    replacement: float = 2e-3
    """One operator of a plan that replaces another: it is made, and its states are matched."""

    def per_tuple_in(self, parts: int) -> float:
        """One tuple that enters a join, made of so many rows."""
        return self.tuple_in + self.word_in * (2 + parts)

    def per_probe(self, parts: int) -> float:
        """One tuple of a multi-way join that visits one more input, made of so many rows."""
        return self.probe + self.word_in / 2 * (2 + parts)

    def per_tuple_out(self, parts: int) -> float:
        """One tuple that a join produces, made of so many rows."""
        return self.tuple_out + self.word_out * (2 + parts)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            number = finite_number(getattr(self, name))
            if number is None or not 0 <= number <= _MOST_SECONDS:
                given = shown_number(getattr(self, name))
                raise BadOption(f"the cost coefficient {name} must be a number of seconds, not {given}")
            msgspec.structs.force_setattr(self, name, number)


def finite_number(value: Any) -> float | None:
    """A finite number as a float; None for anything else.

    >>> finite_number(2), finite_number(True), finite_number("2"), finite_number(10**400)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def shown_number(value: Any) -> str:
    """A value that should be a number, for a message.

    >>> shown_number("x"), shown_number(-3), shown_number(10**5000)
    ("'x'", '-3', 'a number of so many digits')
    """
    # Python does not write very large numbers at all.
    is_large = isinstance(value, int) and abs(value) >= 10**40
    return "a number of so many digits" if is_large else repr(value)
