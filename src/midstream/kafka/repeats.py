"""How a consumer drops repeated results.

A micro-batch is sent again, as a whole, only before the next one is begun, and a result is sent to the same partition
of the topic each time. So in a partition all results of a micro-batch come before any of the next one, at least once
each. Any later message of an earlier micro-batch is a repeat; within a micro-batch, repeats have the same number.

>>> repeats = RepeatFilter()
>>> def headers(batch, number):
...     return [("midstream-query", b"q"), ("midstream-batch", b"%d" % batch), ("midstream-result", b"%d" % number)]
>>> [repeats.is_new(0, headers(*result)) for result in [(0, 0), (0, 1), (0, 0), (0, 1), (0, 2), (1, 0), (0, 2)]]
[True, True, False, False, True, True, False]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from midstream.errors import BadOption
from midstream.kafka.result_headers import result_id

__all__ = ["RepeatFilter"]


@dataclass
class _Latest:
    batch: int
    numbers: set[int] = field(default_factory=set)


class RepeatFilter:
    """Decides for each message whether its result is new. Messages of a partition must be passed in order.

    It remembers the result numbers of one micro-batch for each partition and query. A consumer that restarts must
    restore this state: store :meth:`state` and the offsets in one transaction, and pass it to the new filter. In a
    consumer group, partitions move between consumers: store the state of each partition with its offset, :meth:`load`
    it where the partition is assigned, and :meth:`drop` it where it is revoked.
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._latest: dict[tuple[int, str], _Latest] = {}
        self.load(state)

    def load(self, state: dict[str, Any] | None) -> None:
        """Restore the state of another filter, for all its partitions or one."""
        try:
            for partition, query, batch, numbers in (state or {}).get("latest", ()):
                self._latest[partition, query] = _Latest(batch, set(numbers))
        except (AttributeError, TypeError, ValueError):
            raise BadOption(
                "cannot read the state of a RepeatFilter", hint="Give what state() returned, or nothing."
            ) from None

    def is_new(self, partition: int, headers: Iterable[tuple[str, bytes]]) -> bool:
        """Whether the message's result has not been seen before in this partition."""
        query, batch, number = result_id(headers)
        latest = self._latest.setdefault((partition, query), _Latest(batch))
        if batch < latest.batch:
            return False
        if batch > latest.batch:
            latest.batch, latest.numbers = batch, set()
        is_new = number not in latest.numbers
        latest.numbers.add(number)
        return is_new

    def drop(self, partition: int) -> None:
        """Forget a partition that has moved to another consumer."""
        for key in [key for key in self._latest if key[0] == partition]:
            del self._latest[key]

    def state(self, partition: int | None = None) -> dict[str, Any]:
        """The state for another filter, of one partition or of all.

        As JSON it takes a few bytes per result of one micro-batch.
        """
        known = {key: one for key, one in self._latest.items() if partition in (None, key[0])}
        return {"latest": [[*key, one.batch, sorted(one.numbers)] for key, one in known.items()]}
