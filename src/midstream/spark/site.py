"""A site: one Structured Streaming query, in a Spark application of its own, that runs some nodes of the topology.

    inbox/*/*.parquet ─▶ messages ─┐
                                   ├─▶ to the node's group ─▶ NodeOperator ─▶ foreachBatch: stage
    feeds/*/*/* ──────▶ files ─────┘                                              │ committed
                                                     publish: inboxes of other sites, reports, results

Everything that nodes need to know comes as rows, so Spark's offsets, state and commits make a micro-batch of all nodes
one transaction; what it gives leaves when it is committed (``deployment/sites/site_output``). If a site is killed and
started again, that is to its nodes what the protocol calls a crash: they go on from what they had stored.

The site's own process publishes, writes a *tick* into the inbox from time to time as long as a node waits for
something, and fetches the state of nodes whose site is lost (``state_rescue``). Files of the inbox are deleted when
Spark has taken them; files of feeds stay, unless they are not wanted any more.

    python -m midstream.spark.site DIRECTORY SITE [--remove-feeds]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from midstream.deployment.placement.global_plan import NodeId
from midstream.deployment.protocol.messages import RescueState
from midstream.deployment.protocol.status import NodeStatus
from midstream.deployment.protocol.wire_format import message_from_bytes, message_to_bytes
from midstream.deployment.sites.deployment_directory import DeploymentDirectory
from midstream.deployment.sites.durable_files import held_lock, unique_name, write_whole
from midstream.deployment.sites.message_file import CONTROL, TICK, MessageRow, write_messages
from midstream.deployment.sites.site_input import FEED
from midstream.deployment.sites.site_output import ACTIVITY, RESCUE, GroupActivity, OutputRow, SiteOutput
from midstream.errors import MidstreamError, SparkFailed
from midstream.spark.cell_keys import cell_keys
from midstream.spark.node_operator import NodeOperator
from midstream.spark.session import session
from midstream.spark.state_rescue import check_not_lost, rescued_state

__all__ = ["Site", "run_site"]

SETTINGS: Mapping[str, str] = {
    # A message that is gone is asked for again: it must not end the site.
    "spark.sql.files.ignoreMissingFiles": "true",
    # How often an idle site looks for files.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.driver.memory": "700m",
    "spark.task.maxFailures": "4",
}
MESSAGES = "place long, node string, spread long, kind string, blob binary"
FILES = "path string, modificationTime timestamp, length long, content binary"
OUTPUT = "kind string, target string, node string, blob binary"
POLL_SECONDS = 0.02
OF_ANY_AGE: Mapping[str, str] = {
    # Spark would leave out what is older by a week than the newest file so far: rows that were copied with their times,
    # and everything after a clock was a week ahead. No limit on files per micro-batch: it would go by times, not names.
    "maxFileAge": "36500d",
}
"""Options of both sources."""


class Site:
    """A running site."""

    def __init__(
        self,
        spark: SparkSession,
        directory: DeploymentDirectory,
        site: str,
        *,
        tick_seconds: float = 1.0,
        keep_feeds: bool = True,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._site = site
        self._layout = directory.layout()
        self._output = SiteOutput(directory, site)
        self._tick_seconds = tick_seconds
        self._ticked = time.monotonic()
        self._tick_is_open = False
        self._busy = set(range(self._layout.groups))
        """Groups that wait for something: all, until a micro-batch says otherwise."""
        self.activity: list[GroupActivity] = []
        """What the last micro-batches did."""
        self._nodes: dict[NodeId, NodeStatus] = {}
        self.publish()
        self.query = self._start(keep_feeds)

    def _start(self, keep_feeds: bool) -> StreamingQuery:
        keys = cell_keys(self._layout.groups)
        operator = NodeOperator(self._layout, self._site, uuid.uuid4().hex, keys)
        rows = site_rows(self._spark, self._directory, self._site, keys, keep_feeds).coalesce(self._layout.groups)
        produced = rows.groupBy("group").transformWithStateInPandas(
            operator, OUTPUT, outputMode="Append", timeMode="None"
        )

        def stage(output: DataFrame, batch: int) -> None:
            # Once: a second action would run the operator again.
            self._output.stage(batch, output.toArrow())

        return (
            produced.writeStream.foreachBatch(stage)
            .option("checkpointLocation", f"file://{self._directory.checkpoint(self._site)}")
            .start()
        )

    def work(self) -> None:
        """What the site's process does beside Spark; to be called again and again."""
        self.publish()
        if self.query.exception() is not None:
            raise SparkFailed(f'site "{self._site}" failed', detail=str(self.query.exception()).strip()[:2000])
        if self._busy and not self._tick_is_open and time.monotonic() - self._ticked > self._tick_seconds:
            self._ticked = time.monotonic()
            self._tick_is_open = True
            self._write([MessageRow(TICK, "", b"")])

    def publish(self) -> None:
        """Publish what committed micro-batches gave, and what the nodes hold after them."""
        before = dict(self._nodes)
        for row in self._output.publish():
            if row.kind == ACTIVITY:
                activity = GroupActivity.of_row(row)
                self.activity = [*self.activity[-99:], activity]
                self._nodes |= {node.name: node for node in activity.nodes}
                (self._busy.add if activity.is_busy else self._busy.discard)(activity.group)
                if activity.has_asked_again:
                    self._tick_is_open = False
            elif row.kind == RESCUE:
                self._rescue(row)
        if self._nodes != before:
            write_whole(self._directory.node_status(self._site), msgspec.json.encode(list(self._nodes.values())))

    def _rescue(self, row: OutputRow) -> None:
        question = message_from_bytes(row.blob)
        assert isinstance(question, RescueState)
        found = rescued_state(self._spark, self._directory, question)
        if found is not None:
            self._write([MessageRow(CONTROL, row.node, message_to_bytes(found))])

    def _write(self, rows: list[MessageRow]) -> None:
        write_messages(self._directory.inbox(self._site, "site") / f"{unique_name()}.parquet", rows)


def site_rows(
    spark: SparkSession, directory: DeploymentDirectory, site: str, keys: list[int], keep_feeds: bool = True
) -> DataFrame:
    """All that comes to a site, as rows with the key of the group that they are for."""
    inbox, feeds = directory.inbox(site, "x").parent, directory.feeds(site)
    messages = (
        spark.readStream.schema(MESSAGES)
        .options(**OF_ANY_AGE)
        .option("cleanSource", "delete")
        .parquet(f"file://{inbox}/*")
        .select(
            _groups(F.col("spread"), keys).alias("group"),
            "kind",
            F.col("_metadata.file_path").alias("origin"),
            "place",
            "node",
            "blob",
        )
    )
    files = (
        spark.readStream.format("binaryFile")
        .schema(FILES)
        .options(**OF_ANY_AGE)
        .option("cleanSource", "off" if keep_feeds else "delete")
        .load(f"file://{feeds}/*/*")
        .select(
            _groups(F.crc32(F.regexp_extract("path", "([^/]+)/[^/]+/[^/]+$", 1)), keys).alias("group"),
            F.lit(FEED).alias("kind"),
            F.col("path").alias("origin"),
            F.lit(0).cast("long").alias("place"),
            F.lit("").alias("node"),
            F.col("content").alias("blob"),
        )
    )
    return messages.unionByName(files)


def _groups(spread: Column, keys: list[int]) -> Column:
    """The keys of the groups that a row is for: one by its node, or all."""
    every = F.array(*[F.lit(key).cast("long") for key in keys])
    one = F.array(F.element_at(every, (F.pmod(spread, F.lit(len(keys))) + 1).cast("int")))
    return F.explode(F.when(spread.isNull(), every).otherwise(one))


def run_site(
    directory: str | os.PathLike[str],
    site: str,
    *,
    master: str = "local[1,4]",
    tick_seconds: float = 1.0,
    keep_feeds: bool = True,
    settings: Mapping[str, str] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run a site until ``stop`` says so. Raises AlreadyRunning if another process does, SparkFailed if Spark fails.

    ``tick_seconds`` is how often nodes look whether they have been answered. Without ``keep_feeds``, files of feeds are
    deleted when Spark has taken them: a directory of 10,000 files makes every micro-batch 0.2 s longer.
    """
    paths = DeploymentDirectory(directory)
    paths.check_site(site)
    with held_lock(paths.lock(site), f'site "{site}" of {paths.path}'):
        check_not_lost(paths, site)
        paths = paths.at_place_of(site)
        spark = session(master, paths.layout().groups, {**SETTINGS, **(settings or {})})
        running = Site(spark, paths, site, tick_seconds=tick_seconds, keep_feeds=keep_feeds)
        try:
            while not stop():
                running.work()
                time.sleep(POLL_SECONDS)
        finally:
            running.query.stop()
            running.publish()
            spark.stop()


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        run_site(sys.argv[1], sys.argv[2], keep_feeds="--remove-feeds" not in sys.argv[3:], stop=stopped.is_set)
    except MidstreamError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
