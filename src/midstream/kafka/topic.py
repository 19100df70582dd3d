"""A topic and its brokers, in one string: ``HOST:PORT/TOPIC``, or ``HOST:PORT,HOST:PORT/TOPIC``."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from midstream.errors import BadOption, KafkaUnreachable

__all__ = ["KafkaTopic"]

_SERVER = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})"
_TOPIC = r"[A-Za-z0-9._-]{1,249}"
"""Names that Kafka allows, except "." and ".."."""


@dataclass(frozen=True)
class KafkaTopic:
    """A topic and how to reach it."""

    servers: str
    """Bootstrap brokers, separated by commas; the others are found through them."""
    topic: str

    @classmethod
    def parse(cls, text: str | KafkaTopic) -> KafkaTopic:
        """
        >>> KafkaTopic.parse("one:9092,two:9092/orders")
        KafkaTopic(servers='one:9092,two:9092', topic='orders')
        """
        if isinstance(text, KafkaTopic):
            return text
        servers, found, topic = text.strip().rpartition("/") if isinstance(text, str) else ("", "", "")
        ports = [re.fullmatch(_SERVER, server.strip()) for server in servers.split(",")]
        is_good = found and all(port is not None and 0 < int(port[1]) < 65536 for port in ports)
        if not is_good or not re.fullmatch(_TOPIC, topic) or topic in (".", ".."):
            raise BadOption(
                f"cannot read the topic {text!r}",
                detail="A topic's name has letters, digits, dots, underscores and hyphens.",
                hint="Write brokers and a topic: localhost:9092/orders, or one:9092,two:9092/orders.",
            )
        return cls(",".join(server.strip() for server in servers.split(",")), topic)

    def check_reachable(self, seconds: float = 5.0) -> None:
        """Raise unless one of the brokers accepts a connection: Spark would retry for minutes before it fails."""
        problems = []
        for server in self.servers.split(","):
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), seconds).close()
            except (OSError, UnicodeError) as problem:
                # UnicodeError: not a valid host name.
                problems.append(f"{server}: {problem}")
            else:
                return
        raise KafkaUnreachable(
            "no Kafka broker answers", detail=f"{'; '.join(problems)}.", hint="Start the broker, or check its address."
        )

    def __str__(self) -> str:
        return f"{self.servers}/{self.topic}"
