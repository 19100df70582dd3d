"""Which query a checkpoint or a control directory belongs to, and the refusal of another one's."""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.algebra.plan_json import stream_from_json, stream_to_json
from midstream.errors import CheckpointMismatch
from midstream.planned_query import PlannedQuery
from midstream.planning.partitioning import Partitioning

__all__ = ["QueryFingerprint"]


class QueryFingerprint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query, its streams, and how its rows are spread: what stored state must agree with."""

    text: str
    identity: str
    """What the query computes, however it is written."""
    streams: list[dict[str, Any]]
    cells: int
    partitioning: list[Any]

    @classmethod
    def of(cls, query: PlannedQuery, partitioning: Partitioning) -> QueryFingerprint:
        """The fingerprint of a query that is spread in this way."""
        default = query.plan()
        streams = {window.stream.name: window.stream for window in default.windows()}
        content = {
            "text": query.text,
            "identity": default.derived_from or "",
            "streams": [stream_to_json(streams[name]) for name in sorted(streams)],
            "cells": partitioning.cells,
            "partitioning": [
                [dimension.share, sorted((window, key.text) for window, key in dimension.keys.items())]
                for dimension in partitioning.dimensions
            ],
        }
        # As it is read back from JSON, where tuples are lists.
        return msgspec.json.decode(msgspec.json.encode(content), type=cls)

    def planned(self) -> PlannedQuery:
        """The query, read again from its text and its streams."""
        return PlannedQuery(self.text, [stream_from_json(stream) for stream in self.streams])

    def check_same(self, stored: QueryFingerprint, place: str, remedy: str, *, with_partitioning: bool = True) -> None:
        """Refuse what was stored for another query in ``place``; ``remedy`` says what to use instead of that place."""
        names = ["identity", "streams", "cells", *(["partitioning"] if with_partitioning else [])]
        different = [name for name in names if getattr(stored, name) != getattr(self, name)]
        if not different:
            return
        shown = "text" if different[0] == "identity" else different[0]
        raise CheckpointMismatch(
            f"{place} belongs to a query with another {shown}",
            detail=f"There: {getattr(stored, shown)}. Now: {getattr(self, shown)}.",
            hint=f"Use the query that it was made for, or {remedy}.",
        )

    def check_identity(self, identity: str | None, place: str) -> None:
        """Refuse a query that this version of midstream reads as another one."""
        if identity != self.identity:
            raise CheckpointMismatch(
                f"the query in {place} means something else to this version of midstream",
                hint="Use the version that the query was started with.",
            )
