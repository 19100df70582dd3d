"""What is seen of a simulation: results, figures, and whatever a watcher looks at."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.messages import Control, Envelope, Report
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["Delivery", "Figures", "Watcher"]


@dataclass(frozen=True)
class Delivery:
    """Results that have reached a sink."""

    time: float
    query: str
    rows: ReceivedRows


@dataclass
class Figures:
    """What happened in a simulation."""

    envelopes: int = 0
    bytes: int = 0
    state_bytes: int = 0
    control_messages: int = 0
    lost_envelopes: int = 0
    most_buffered: int = 0
    """The most messages that were seen in one outbox, which is looked at when questions are repeated."""
    steps: int = 0
    """How often a node took what had come."""


class Watcher:
    """Sees what happens in a simulation. This one ignores it."""

    def heard(self, node: NodeId, message: Control) -> None:
        """A node gets a control message."""

    def reported(self, report: Report) -> None:
        """The coordinator gets a report."""

    def sent(self, envelope: Envelope) -> None:
        """An envelope sets off over a link."""

    def passed(self) -> None:
        """Something has happened."""
