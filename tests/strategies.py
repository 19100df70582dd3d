"""The strategies that tests go through: rows of ``midstream.testing.STRATEGIES``, the one table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.testing import STRATEGIES

__all__ = ["ANY_OPERATOR", "JOINS_ONLY", "STATEFUL", "Way", "ways"]

Way = tuple[str, Mapping[str, Any]]
"""The name of a strategy, and its options."""


def ways(*labels: str) -> list[Way]:
    """The strategies of these labels."""
    return [STRATEGIES[label] for label in labels]


STATEFUL = {label: way for label, way in STRATEGIES.items() if label != "pause-drain-resume"}
"""Those that change a plan with state."""
JOINS_ONLY = tuple(label for label in STATEFUL if label.startswith(("parallel-track", "reference-point")))
"""Those that cannot change a plan with aggregates, differences or distinct."""
ANY_OPERATOR = {label: way for label, way in STATEFUL.items() if label not in JOINS_ONLY}
"""Those that change any plan."""
