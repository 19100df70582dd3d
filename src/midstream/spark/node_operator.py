"""The stateful operator of a site: one call per group of nodes and micro-batch.

What comes are rows: messages from other sites and the coordinator, files of the nodes' feeds, the tick that says that
it is time to ask again. What goes are rows, too. In between a ``NodeGroup`` works, which stays in the memory of the
Python worker from one micro-batch to the next, under a version that is also in Spark's state. If the two differ
(another worker, a restart, an attempt that failed), the group is restored from the state.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from midstream.deployment.protocol.status import node_status
from midstream.deployment.sites.deployment_directory import SiteLayout
from midstream.deployment.sites.node_group import NodeGroup
from midstream.deployment.sites.site_input import InputRow, group_input
from midstream.deployment.sites.site_output import GroupActivity, group_output

__all__ = ["NodeOperator"]

VERSION = "version"
"""Where the state has the version of the group that it belongs to."""


_GROUPS: dict[tuple[str, int], tuple[str, NodeGroup]] = {}
"""The groups in this process with their versions, by run of a site and number."""


class NodeOperator(StatefulProcessor):
    """Runs the nodes of a site. ``run`` names the running process of the site, ``keys`` are those of its groups."""

    node_groups: type[NodeGroup] = NodeGroup
    """What a group runs as. Benchmarks put baselines in its place."""

    def __init__(self, layout: SiteLayout, site: str, run: str, keys: list[int]) -> None:
        self._layout = layout
        self._site = site
        self._run = run
        self._groups = {key: group for group, key in enumerate(keys)}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("stored", "name string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        number = self._groups[int(key[0])]
        given = group_input(_received(rows))
        group, was_restored = self._group(number)
        output = group_output(group.step(given), self._layout)
        self._store(number, group)
        seconds = time.perf_counter() - began
        nodes = [node_status(node) for node in group.nodes.values()]
        activity = GroupActivity(
            number, group.is_busy, given.asks_again, was_restored, seconds, group.has_more_to_send, nodes
        )
        output.append(activity.as_row())
        yield pd.DataFrame(
            {
                "kind": [row.kind for row in output],
                "target": [row.target for row in output],
                "node": [row.node for row in output],
                "blob": [row.blob for row in output],
            }
        )

    def close(self) -> None:
        pass

    def _hosts(self, number: int) -> Any:
        layout, site = self._layout, self._site
        return lambda node: layout.site_of(node) == site and layout.group_of(node) == number

    def _group(self, number: int) -> tuple[NodeGroup, bool]:
        """The group, and whether it had to be restored. It is taken out while it works: see ``cell_cache``."""
        stored = self._state.getValue((VERSION,))
        version = "" if stored is None else bytes(stored[0]).decode()
        known_version, group = _GROUPS.pop((self._run, number), ("", None))
        if group is not None and known_version == version:
            return group, False
        kept = {key[0]: bytes(value[0]) for key, value in self._state.iterator()}
        kept.pop(VERSION, None)
        return self.node_groups.restored(self._hosts(number), kept), True

    def _store(self, number: int, group: NodeGroup) -> None:
        for name, data in group.changes().items():
            if data is not None:
                self._state.updateValue((name,), (data,))
            elif self._state.containsKey((name,)):
                self._state.removeKey((name,))
        version = uuid.uuid4().hex
        self._state.updateValue((VERSION,), (version.encode(),))
        _GROUPS[self._run, number] = version, group


def _received(frames: Iterator[pd.DataFrame]) -> Iterator[InputRow]:
    for frame in frames:
        columns = (frame[name] for name in InputRow._fields)
        for origin, place, kind, node, blob in zip(*columns, strict=True):
            yield InputRow(str(origin), int(place), str(kind), str(node), bytes(blob))
