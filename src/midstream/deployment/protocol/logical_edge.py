"""A logical edge: one totally ordered log of numbered messages from a stage to its consumer, wherever the two run.

The producer's end keeps every message until the consumer has taken it durably; the consumer's end knows the number that
it expects next. Connections along the edge come and go: links are cut, stages move. The numbers go on, because both
ends are part of their stage's snapshot. So whatever is lost, doubled or overtaken on the way, the consumer takes each
message once and in order.

Invariants, asserted here (the numbers are those of ``docs/deployment.md``):

- I3, retention: the producer's end has every message from the consumer's durable cursor on;
- I4, no gap and no repeat: the consumer takes only the message with the number that it expects;
- I5, fence: the consumer ignores connections of a generation older than the edge's;
- I7: frontiers never move back, also when the producer moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from midstream.algebra.window_spec import BEGINNING
from midstream.deployment.protocol.messages import Content, Data, Path
from midstream.deployment.protocol.patience import Patience

__all__ = ["ConsumerEnd", "ProducerEnd"]


@dataclass
class ProducerEnd:
    """The producer's end of an edge: its outbox."""

    route: Path
    generation: int
    next_number: int = 0
    """The number of the next message."""
    first_number: int = 0
    """The number of the first message in the outbox: earlier ones have been taken durably."""
    messages: deque[Content] = field(default_factory=deque)
    is_connected: bool = False
    """Whether the consumer has said where to begin, since the route was last set or found broken."""
    has_asked: bool = False
    """Whether it has been asked for that."""
    next_to_send: int = 0
    patience: Patience = field(default_factory=Patience)

    def append(self, content: Content) -> None:
        """Put a message at the end of the log."""
        self.messages.append(content)
        self.next_number += 1

    def set_route(self, route: Path, generation: int) -> None:
        """Connect anew, along another route."""
        assert generation >= self.generation, "generations never go back"
        self.route, self.generation = route, generation
        self.is_connected = self.has_asked = False
        self.patience.answered()

    def take_cursor(self, next_expected: int, answers_connect: bool, keeps: bool = False) -> None:
        """Drop what the consumer has taken, unless it is to be kept; begin there if it answers a new connection."""
        assert next_expected <= self.next_number, "I3: nobody has taken what was never sent"
        self.patience.answered()
        while self.first_number < next_expected and not keeps:
            self.messages.popleft()
            self.first_number += 1
        if answers_connect:
            # An answer that was overtaken names a number before the first message: that one was taken since.
            self.is_connected = True
            self.next_to_send = max(next_expected, self.first_number)
        self.next_to_send = max(self.next_to_send, self.first_number)

    def unsent(self) -> Iterator[tuple[int, Content]]:
        """Messages to be sent on the connection, with their numbers; they count as sent."""
        if self.is_connected:
            for place in range(self.next_to_send - self.first_number, len(self.messages)):
                yield self.first_number + place, self.messages[place]
            self.next_to_send = self.next_number

    def check_connection(self) -> None:
        """Take the connection for broken if messages wait and the consumer has not answered for a while."""
        if (self.messages or not self.is_connected) and self.patience.is_over():
            self.is_connected = self.has_asked = False


@dataclass
class ConsumerEnd:
    """The consumer's end of an edge: its cursor."""

    generation: int = 0
    next_number: int = 0
    """The number of the message that is taken next: all earlier ones are part of the stage's state."""
    frontier: int = BEGINNING
    """No later row of this edge begins to be valid earlier."""
    waiting: dict[int, Content] = field(default_factory=dict)
    """Messages that have come and are not yet taken, by number."""
    way_back: Path | None = None
    """The path of answers: that of the latest connection, backwards."""
    is_to_answer: bool = False
    """Whether the producer is to be told the cursor."""
    answers_connect: bool = False

    def connect(self, generation: int, way_back: Path) -> None:
        """A producer asks where to begin."""
        if generation < self.generation:
            return
        self.generation, self.way_back = generation, way_back
        self.is_to_answer = self.answers_connect = True

    def receive(self, generation: int, number: int, content: Content) -> None:
        """A message has come."""
        if generation < self.generation:
            return
        if number >= self.next_number:
            self.waiting[number] = content
        else:
            self.is_to_answer = True

    @property
    def has_next(self) -> bool:
        return self.next_number in self.waiting

    def take(self) -> Content:
        """The message that is expected next."""
        content = self.waiting.pop(self.next_number)
        self.next_number += 1
        self.is_to_answer = True
        if isinstance(content, Data):
            assert content.frontier >= self.frontier, "I7: a frontier never moves back"
            self.frontier = content.frontier
        return content
