"""``midstream explain``: show a query's plan and the equivalent plans, without starting Spark."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from midstream.algebra.stream import Stream
from midstream.cli.output import Output, escape
from midstream.cli.plan_names import name_of, plan_named
from midstream.cli.schemas import KAFKA, RATE, RAW, kind_of, schema_from_ddl, schema_of_file
from midstream.cli.sources import StreamSource, choose_event_time, local_files, read_lateness
from midstream.delta.added_files import table_schema
from midstream.errors import BadArgument
from midstream.planning.partitioning import partition
from midstream.query import ContinuousQuery

__all__ = ["declared", "explain"]


def explain(
    text: str,
    sources: Sequence[StreamSource],
    output: Output,
    plan: str | None = None,
    shows_plans: bool = False,
    limit: int = 20,
    cells: int | None = None,
) -> int:
    """Show one plan as a tree, or all plans with their names, and how rows are partitioned over cells."""
    query = ContinuousQuery(text, [declared(source) for source in sources])
    spread = None if cells is None else partition(query.plan(), cells)
    document: dict[str, Any] = {"query": text}
    if shows_plans:
        found = list(enumerate(islice(query.plans(), limit + 1), start=1))
        shown = [(number, name_of(query, each, number), each.explain()) for number, each in found[:limit]]
        for number, name, tree in shown:
            is_default = "  (default)" if number == 1 else ""
            output.say(f"[bold]#{number}[/bold]  --plan {escape(shlex.quote(name))}{is_default}")
            output.say(escape(tree))
        if len(found) > limit:
            output.say(f"There are more plans; use --limit to show more than {limit}.")
        document["plans"] = [{"number": number, "name": name, "tree": tree} for number, name, tree in shown]
        document["has_more"] = len(found) > limit
    else:
        chosen = plan_named(query, plan)
        output.say(escape(chosen.explain()))
        document["plan"] = chosen.explain()
    if spread is not None:
        output.say(escape(spread.explain()))
        document |= {"cells": spread.cells, "partitioning": spread.explain()}
    output.document(document)
    return 0


def declared(source: StreamSource) -> Stream:
    """The stream's declaration, with its columns from ``--schema`` or the first file."""
    if source.schema is not None:
        schema = schema_from_ddl(source.schema, source.name)
    elif source.format in ("rate", "rate-micro-batch"):
        schema = RATE
    elif source.payload == "raw" and source.topic is not None and source.option("select") is None:
        schema = RAW
    elif source.is_table and source.path is not None:
        schema = table_schema(source.path)
    else:
        first = next(local_files(source.path), None) if source.path is not None else None
        if first is None:
            raise BadArgument(
                f'the columns of stream "{source.name}" are not known',
                hint=f'Declare them: --schema {source.name}="ts timestamp, id long".',
            )
        separator = source.option("sep") or source.option("delimiter") or ","
        has_header = (source.option("header") or "true").lower() == "true"
        schema = schema_of_file(first, source.format, separator, has_header)
    otherwise = None if source.topic is None else "kafka_timestamp"
    kinds = {field.name: kind_of(field.type) for field in schema}
    event_time = choose_event_time(source.name, kinds, source.event_time, otherwise)
    if source.topic is not None:
        schema = pa.schema([*schema, *KAFKA])
    return Stream(source.name, schema, event_time, read_lateness(source.lateness or "0", source.name))
