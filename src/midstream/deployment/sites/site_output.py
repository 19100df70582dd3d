"""What the micro-batches of a site give, and how it leaves the site exactly once.

A micro-batch may run more than once: after a crash, Spark runs the last one again if it was not committed, and then it
need not give the same (a node that was restored asks anew what it was in the middle of). So nothing leaves the site
before the micro-batch is committed:

    the micro-batch ends      its whole output is *staged*, as one file named by the micro-batch's number; what an
                              earlier attempt had staged is replaced
    Spark commits it          state and output are now both fixed
    the output is published   messages to the inboxes of other sites, reports to the coordinator, results to the
                              query's directory, each file named by the number; then the staged file is removed

After a crash the staged files of committed micro-batches are published, possibly again, under the same names.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.status import NodeStatus
from midstream.deployment.protocol.wire_format import message_to_bytes
from midstream.deployment.sites.deployment_directory import DeploymentDirectory, SiteLayout
from midstream.deployment.sites.durable_files import write_whole
from midstream.deployment.sites.file_names import file_name
from midstream.deployment.sites.message_file import ENVELOPE, REPORT, MessageRow, write_messages
from midstream.deployment.sites.node_group import GroupOutput
from midstream.engine.state.window_store import ReceivedRows

__all__ = ["ACTIVITY", "OUTPUT_SCHEMA", "RESCUE", "RESULT", "GroupActivity", "OutputRow", "SiteOutput", "group_output"]

RESULT, RESCUE, ACTIVITY = "result", "rescue", "activity"
"""Kinds of output beside messages and reports: results, a question for a lost node's state, what the group is doing."""

OUTPUT_SCHEMA = pa.schema({"kind": pa.string(), "target": pa.string(), "node": pa.string(), "blob": pa.binary()})


@dataclass(frozen=True)
class OutputRow:
    """A piece of output. ``target`` is the receiving site of a message, or the query of a result."""

    kind: str
    target: str
    node: NodeId
    blob: bytes


class GroupActivity(msgspec.Struct, frozen=True):
    """What a group did in a micro-batch, for the site's process."""

    group: int
    is_busy: bool
    has_asked_again: bool
    was_restored: bool
    seconds: float

    nodes: list[NodeStatus] = []
    """What the group's nodes hold after the micro-batch."""

    def as_row(self) -> OutputRow:
        return OutputRow(ACTIVITY, "", "", msgspec.json.encode(self))

    @classmethod
    def of_row(cls, row: OutputRow) -> GroupActivity:
        return msgspec.json.decode(row.blob, type=cls)


def group_output(out: GroupOutput, layout: SiteLayout) -> list[OutputRow]:
    """What a step of a group gives, as rows."""
    return [
        *(OutputRow(ENVELOPE, layout.site_of(e.node), e.node, message_to_bytes(e)) for e in out.envelopes),
        *(OutputRow(REPORT, "", report.node, message_to_bytes(report)) for report in out.reports),
        *(OutputRow(RESULT, query, "", _rows_to_bytes(rows)) for query, rows in out.results),
        *(OutputRow(RESCUE, "", node, message_to_bytes(rescue)) for node, rescue in out.rescues),
    ]


class SiteOutput:
    """The output of a site: staged, then published."""

    def __init__(self, directory: DeploymentDirectory, site: str) -> None:
        self._directory = directory
        self._site = site
        self._staged = directory.staged(site)
        self._commits = directory.checkpoint(site) / "commits"
        self._staged.mkdir(parents=True, exist_ok=True)

    def stage(self, batch: int, output: pa.Table) -> None:
        """Keep the output of a micro-batch until it is committed."""
        path = self._staged / f"{batch:012d}.parquet"
        if output.num_rows:
            sink = io.BytesIO()
            pq.write_table(output.cast(OUTPUT_SCHEMA), sink)
            write_whole(path, sink.getvalue())
        else:
            path.unlink(missing_ok=True)

    def publish(self) -> Iterator[OutputRow]:
        """Publish what committed micro-batches gave; gives what the site's own process is to look at."""
        staged = sorted(self._staged.glob("[!_]*.parquet"))
        committed = self._last_committed() if staged else -1
        for path in staged:
            batch = int(path.stem)
            if batch > committed:
                break
            table = pq.read_table(path)
            columns = (table[name].to_pylist() for name in OUTPUT_SCHEMA.names)
            rows = [OutputRow(*row) for row in zip(*columns, strict=True)]
            self._publish_messages(batch, rows)
            self._publish_results(batch, rows)
            path.unlink()
            yield from (row for row in rows if row.kind in (RESCUE, ACTIVITY))

    def _last_committed(self) -> int:
        """The last micro-batch that is committed; all before it are. Spark keeps the latest hundred or so commits."""
        names = (path.name for path in self._commits.glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _publish_messages(self, batch: int, rows: Iterable[OutputRow]) -> None:
        by_receiver: dict[str, list[MessageRow]] = {}
        reports: list[MessageRow] = []
        for row in rows:
            if row.kind == ENVELOPE:
                by_receiver.setdefault(row.target, []).append(MessageRow(ENVELOPE, row.node, row.blob))
            elif row.kind == REPORT:
                reports.append(MessageRow(REPORT, row.node, row.blob))
        name = f"{batch:012d}.parquet"
        for receiver, messages in by_receiver.items():
            write_messages(self._directory.inbox(receiver, self._site) / name, messages)
        if reports:
            write_messages(self._directory.reports(self._site) / name, reports)

    def _publish_results(self, batch: int, rows: Iterable[OutputRow]) -> None:
        by_query: dict[str, list[ReceivedRows]] = {}
        for row in rows:
            if row.kind == RESULT:
                by_query.setdefault(row.target, []).append(_rows_from_bytes(row.blob))
        for query, pieces in by_query.items():
            columns = self._directory.columns(query)
            table = pa.concat_tables(_result_table(piece, columns) for piece in pieces)
            sink = io.BytesIO()
            pq.write_table(table, sink)
            name = f"{file_name(self._site)}-{batch:012d}.parquet"
            write_whole(self._directory.results(query) / name, sink.getvalue())


def _rows_to_bytes(rows: ReceivedRows) -> bytes:
    """Results on their way to a file."""
    batch = rows.to_record_batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _rows_from_bytes(data: bytes) -> ReceivedRows:
    """What :func:`_rows_to_bytes` gave this for."""
    with pa.ipc.open_stream(data) as reader:
        return ReceivedRows.of_record_batch(reader.read_next_batch())


def _result_table(rows: ReceivedRows, columns: list[str]) -> pa.Table:
    names = columns if len(columns) == len(rows.columns) else [str(place) for place in range(len(rows.columns))]
    return pa.Table.from_arrays(
        [*rows.columns, pa.array(rows.valid_from), pa.array(rows.valid_to)], names=[*names, "valid_from", "valid_to"]
    )
