"""How long to wait for an answer before asking again: longer each time, so that a slow link is not flooded.

>>> patience = Patience()
>>> [patience.is_over() for _ in range(8)]
[False, True, False, False, True, False, False, False]
>>> patience.answered()
>>> [patience.is_over() for _ in range(2)]
[False, True]
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Patience"]

LONGEST = 64
"""Looks between two questions at most."""


@dataclass
class Patience:
    """Counts looks at something that has not been answered."""

    looks: int = 0
    limit: int = 2
    least: int = 2
    """Looks before the first question."""

    @classmethod
    def over(cls, hops: int) -> Patience:
        """For an answer that comes back over so many hops: further ones take longer."""
        return cls(limit=2 * max(1, hops), least=2 * max(1, hops))

    def is_over(self) -> bool:
        """One more look: whether it is time to ask again."""
        self.looks += 1
        if self.looks < self.limit:
            return False
        self.looks = 0
        self.limit = min(LONGEST, self.limit + 1 if self.limit < 4 else 2 * self.limit)
        return True

    def answered(self) -> None:
        """An answer has come."""
        self.looks, self.limit = 0, self.least
