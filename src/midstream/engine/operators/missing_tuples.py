"""What the state of a join side may lack: tuples older than its plan, to be computed when they are asked for.

Joins only ask; ``migration/state_completion`` computes.
"""

from __future__ import annotations

from typing import Protocol

from midstream.engine.kernels import Ints
from midstream.engine.state.join_state import JoinState

__all__ = ["MissingTuples"]


class MissingTuples(Protocol):
    """The old tuples of a join side, computed by key and remembered."""

    memo: JoinState
    """What has been computed."""
    computed: int
    """How many tuples that were."""
    counts_keys: bool
    """Count the keys that are left: needed where no keys are completed ahead."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to compute."""

    def request(self, lows: Ints, highs: Ints) -> None:
        """Announce that these codes will be asked for: what many ask for in one push is computed together."""

    def forward(self) -> None:
        """Request in turn what the tuples that were requested are made of."""

    def complete(self, lows: Ints, highs: Ints) -> list[JoinState]:
        """States with all old tuples whose code lies in one of the intervals, and perhaps others."""

    def complete_all(self) -> list[JoinState]:
        """States with all old tuples."""

    def complete_ahead(self, count: int) -> int:
        """Complete what nobody has asked for yet until about so many tuples were read and computed; how many."""

    def expire(self, frontier: int) -> bool:
        """Forget what has ended; whether nothing is left to compute now."""
