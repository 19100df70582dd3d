"""The coordinator or one site of a deployment on Spark, as ours or as a baseline.

    python -m benchmarks.isqd.spark_process APPROACH DIRECTORY NAME [SETTING=VALUE …]

``NAME`` is a site, or ``coordinator``; settings are Spark's. The approaches:

- ``ISQD``: the product as it is;
- ``ST``: the same, but a stage's snapshot leaves as a whole in one file, so that every site on the way receives all of
  it before it sends it on;
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping

from midstream.deployment.protocol import node_runtime
from midstream.deployment.protocol.node_runtime import NodeRuntime
from midstream.deployment.sites.coordinator_process import run_coordinator
from midstream.deployment.sites.node_group import NodeGroup
from midstream.spark import site
from midstream.spark.node_operator import NodeOperator

__all__ = ["main"]

EVERYTHING = 1 << 40


class StoreAndForwardNode(NodeRuntime):
    """A node that sends a snapshot as a whole."""

    def __init__(self, name: str, chunk_bytes: int = node_runtime.CHUNK_BYTES) -> None:
        super().__init__(name, chunk_bytes)
        # In the Python worker that runs the node.
        node_runtime.CHUNKS_AHEAD = EVERYTHING


class StoreAndForwardGroup(NodeGroup):
    """Nodes that send a snapshot as a whole."""

    runtimes = StoreAndForwardNode
    chunks_at_once = EVERYTHING


class StoreAndForwardOperator(NodeOperator):
    """Nodes that send a snapshot as a whole."""

    node_groups = StoreAndForwardGroup


def main(approach: str, directory: str, name: str, settings: Mapping[str, str]) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if name == "coordinator":
        run_coordinator(directory, stop=stopped.is_set)
        return
    if approach == "ST":
        site.NodeOperator = StoreAndForwardOperator  # type: ignore[misc]
    site.run_site(directory, name, settings=settings, stop=stopped.is_set)


if __name__ == "__main__":
    # Not as __main__: Python workers are to find its classes.
    from benchmarks.isqd.spark_process import main as run

    run(sys.argv[1], sys.argv[2], sys.argv[3], dict(argument.split("=", 1) for argument in sys.argv[4:]))
