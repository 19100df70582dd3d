"""What things cost in a simulation: how long they take, how often they go wrong, how large messages are."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.deployment.protocol.messages import Data, Envelope, Numbered, StateChunk
from midstream.deployment.protocol.node_runtime import Arrival
from midstream.errors import BadTopology

__all__ = ["Costs", "Unreliability", "bytes_of", "rows_arrived", "rows_in"]

_ENVELOPE_BYTES = 100


@dataclass(frozen=True)
class Costs:
    """How long things take, in milliseconds."""

    step: float = 0.1
    """A node's step, whatever it does."""
    row: float = 0.001
    """Per row that a node takes."""
    control: float = 1.0
    """A message between the coordinator and a node, one way."""
    context: float = 0.0
    """Per deployment context that a node prepares."""
    plan: float = 0.1
    """Per query that the coordinator plans anew."""
    call: float = 0.0
    """What a message to a node takes the thread of the coordinator that sends it: once for each context in it."""
    threads: int | None = None
    """How many queries the coordinator serves at once, each in a thread of its own; None: all."""
    cores: int | None = None
    """How many nodes can work at once, if all are on one machine: more take longer in proportion; None: any number."""
    monitor: float = 0.0
    """Until the coordinator hears of a change of the topology."""
    ask_again: float = 50.0
    """How often nodes and coordinator repeat what has not been answered."""


@dataclass(frozen=True)
class Unreliability:
    """How often control messages go wrong."""

    lost: float = 0.0
    doubled: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.lost < 1 and 0 <= self.doubled <= 1):
            raise BadTopology(
                f"control messages cannot be lost with probability {self.lost} and doubled with {self.doubled}",
                hint="Both are between 0 and 1, and some messages must arrive.",
            )


def rows_in(envelope: Envelope) -> int:
    """The rows that an envelope brings."""
    message = envelope.message
    if isinstance(message, Numbered) and isinstance(message.content, Data):
        return len(message.content.rows)
    return 0


def rows_arrived(arrival: Arrival) -> int:
    """The rows that arise."""
    return 0 if arrival.table is None else arrival.table.num_rows


def bytes_of(envelope: Envelope) -> int:
    """What an envelope takes on a link, about."""
    message = envelope.message
    if isinstance(message, StateChunk):
        return _ENVELOPE_BYTES + len(message.data)
    if isinstance(message, Numbered) and isinstance(message.content, Data):
        rows = message.content.rows
        return _ENVELOPE_BYTES + 16 * len(rows) + sum(int(column.nbytes) for column in rows.columns)
    return _ENVELOPE_BYTES
