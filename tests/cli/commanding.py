"""Calling commands, and control directories as a running query would have them, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json, stream_to_json
from midstream.cli.commands import app
from midstream.spark.control import ControlDirectory

__all__ = ["TEXT", "Called", "call", "control_of", "told"]

TEXT = """SELECT o.id, p.ts AS paid, s.ts AS shipped
FROM orders [RANGE 600] o, payments [RANGE 600] p, shipments [RANGE 600] s
WHERE o.id = p.id AND o.id = s.id"""
SCHEMA = pa.schema({"ts": pa.int64(), "id": pa.int64()})


class Called:
    """What a command gave: its exit code, and what it wrote where."""

    def __init__(self, *arguments: object) -> None:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def document(self) -> dict[str, Any]:
        """Standard output, which must be one JSON document."""
        (line,) = self.out.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document


def call(*arguments: object) -> Called:
    return Called(*arguments)


def control_of(folder: Path, first_plan: str | None = None) -> ControlDirectory:
    """The control directory of a query over three streams, as a query makes it when it starts."""
    query = ContinuousQuery(TEXT, [Stream(name, SCHEMA, "ts") for name in ("orders", "payments", "shipments")])
    control = ControlDirectory(folder)
    control.create(
        {
            "text": TEXT,
            "identity": query.plan().derived_from,
            "streams": [stream_to_json(stream) for stream in query.streams],
            "cells": 1,
            "partitioning": [],
            "first_plan": plan_to_json(query.plan(first_plan)),
        }
    )
    return control


def told(
    control: ControlDirectory, plan: str, history: list[dict[str, Any]], has_ended: bool = False, **metrics: Any
) -> None:
    """What the query says of itself after a micro-batch."""
    query = ContinuousQuery(TEXT, [Stream(name, SCHEMA, "ts") for name in ("orders", "payments", "shipments")])
    counts = {"rows": 1200, "late": 7, "without_event_time": 0, "event_time_out_of_range": 0}
    figures = {
        "watermark": 4242,
        "finished": False,
        "streams": {stream.name: dict(counts) for stream in query.streams},
        "results": 31_000,
        "window_rows": 900,
        "state_rows": 1800,
        "state_bytes": 64_000,
        "buffered": 0,
        "migrating": False,
        "rebuilds": 0,
        "batches": 12,
        "seconds": 0.25,
        "cells": [{"idle": ["shipments"], "operators": [{"operator": "Join o.id = p.id", "state_rows": 900}]}],
    }
    control.write_status(
        {
            "plan": query.plan(plan).explain(),
            "plan_json": plan_to_json(query.plan(plan)),
            "has_ended": has_ended,
            "history": history,
            "metrics": figures | metrics,
            "rates": {"rows": 1234.6, "results": None},
            "told": 1.0,
        }
    )
