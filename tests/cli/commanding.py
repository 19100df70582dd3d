"""Calling commands, and control directories as a running query would have them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_to_json
from midstream.cli.commands import app
from midstream.planning.partitioning import partition
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import (
    CellFigures,
    ClusterMetrics,
    CommandOutcome,
    MigrationEntry,
    OperatorFigures,
    Rates,
    Status,
)
from midstream.runtime.query_fingerprint import QueryFingerprint
from midstream.runtime.stream_counters import StreamCounters

__all__ = ["TEXT", "Called", "call", "control_of", "reported"]

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
    first = query.plan(first_plan)
    control.create(QueryFingerprint.of(query, partition(query.plan(), 1)), plan_to_json(first))
    return control


def reported(
    control: ControlDirectory,
    plan: str,
    history: Sequence[MigrationEntry] = (),
    has_ended: bool = False,
    commands: Sequence[CommandOutcome] = (),
    **metrics: Any,
) -> None:
    """What the query reports after a micro-batch."""
    query = ContinuousQuery(TEXT, [Stream(name, SCHEMA, "ts") for name in ("orders", "payments", "shipments")])
    chosen = query.plan(plan)
    join = OperatorFigures(
        operator="Join o.id = p.id",
        kind="join",
        subplan="",
        rows_in=0,
        rows_out=0,
        probes=0,
        compared=0,
        state_rows=900,
        state_bytes=0,
    )
    shared = {
        "streams": {stream.name: StreamCounters(rows=1200, late=7) for stream in query.streams},
        "results": 31_000,
        "window_rows": 900,
        "state_rows": 1800,
        "state_bytes": 64_000,
        "buffered": 0,
        "operators": [join],
        "migrating": False,
        "batches": 12,
        "seconds": 0.25,
        "segments": 1,
        "segment_rows": 900,
        "bytes_written": 0,
    }
    cell = CellFigures(
        plan=chosen.explain(),
        plan_json=None,
        watermark=4242,
        idle=["shipments"],
        commands=list(commands),
        rebuild_seconds=None,
        **shared,
    )
    own = {"watermark": 4242, "finished": False, "rebuilds": 0, "query": None, "cells": [cell], **shared}
    control.write_status(
        Status(
            plan=chosen.explain(),
            plan_json=plan_to_json(chosen),
            has_ended=has_ended,
            history=list(history),
            metrics=ClusterMetrics(**{**own, **metrics}),
            rates=Rates(rows=1234.6),
            reported=1.0,
        )
    )
