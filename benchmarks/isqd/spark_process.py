"""The coordinator or one site of a deployment on Spark, as ours or as a baseline.

    python -m benchmarks.isqd.spark_process APPROACH DIRECTORY NAME [SETTING=VALUE …]

``NAME`` is a site, or ``coordinator``; settings are Spark's. The approaches:

- ``ISQD``: the product as it is;
- ``ISQD or ST``: the same, but as long as there is a file ``as_a_whole`` in the deployment's directory, a stage's
  snapshot leaves as a whole in one file, so that every site on the way receives all of it before it sends it on: in a
  micro-batch, as everything that nodes receive, or, if the file says ``transit``, without one, as the product does;
- ``HSQD``, ``HCQD``: holistic redeployment, one query at a time or eight (``holistic_sites``).

The coordinator counts what it does in ``coordinator/counts.json``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.isqd.emulation import IncrementalCoordinator
from midstream.deployment.protocol import node_runtime
from midstream.deployment.protocol.coordinator import Coordinator, Instruction
from midstream.deployment.protocol.coordinator_log import CoordinatorLog
from midstream.deployment.protocol.messages import Acted, Envelope, Installed, Report, StateChunk
from midstream.deployment.protocol.node_runtime import CHUNKS_AHEAD, CHUNKS_AT_ONCE, NodeRuntime
from midstream.deployment.sites import coordinator_process, site_output
from midstream.deployment.sites.durable_files import write_whole
from midstream.deployment.sites.node_group import NodeGroup
from midstream.deployment.sites.transit import is_in_transit
from midstream.deployment.topology.topology import Topology
from midstream.spark import site
from midstream.spark.node_operator import NodeOperator

__all__ = ["main"]

EVERYTHING = 1 << 40
AS_A_WHOLE = "MIDSTREAM_BENCHMARK_AS_A_WHOLE"
AT_ONCE = {"HSQD": 1, "HCQD": 8}


class SwitchedNode(NodeRuntime):
    """A node that sends a snapshot as a whole as long as the file is there that the environment names."""

    def _begin_step(self) -> None:
        switch = Path(os.environ[AS_A_WHOLE])
        is_whole = switch.exists()
        self.chunks_at_once = EVERYTHING if is_whole else CHUNKS_AT_ONCE
        # In the Python worker that runs the node.
        node_runtime.CHUNKS_AHEAD = EVERYTHING if is_whole else CHUNKS_AHEAD
        by_micro_batches = is_whole and switch.read_text() != "transit"
        site_output.is_in_transit = _is_in_transit_without_state if by_micro_batches else is_in_transit
        super()._begin_step()


def _is_in_transit_without_state(envelope: Envelope) -> bool:
    return is_in_transit(envelope) and not isinstance(envelope.message, StateChunk)


class SwitchedGroup(NodeGroup):
    """Nodes that send a snapshot as a whole, or in parts."""

    runtimes = SwitchedNode


class SwitchedOperator(NodeOperator):
    """Nodes that send a snapshot as a whole, or in parts."""

    node_groups = SwitchedGroup


class CountingProcess(coordinator_process.CoordinatorProcess):
    """A coordinator that counts its messages and the fragments that it touches, and notes when stages moved."""

    instructions = 0

    def _send(self, instructions: list[Instruction]) -> None:
        self.instructions += len(instructions)
        super()._send(instructions)

    def _write_status(self) -> None:
        touched = getattr(self.coordinator, "touched", 0)
        moments = getattr(self.coordinator, "moments", {})
        counts = {"instructions": self.instructions, "told": self._log.entries, "touched": touched, "moments": moments}
        write_whole(self._directory.status.with_name("counts.json"), json.dumps(counts).encode())
        super()._write_status()


class _Coordinator(IncrementalCoordinator):
    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.moments: dict[str, float] = {}
        """When a stage was last reported to have ended or begun somewhere."""

    def take(self, report: Report) -> list[Instruction]:
        if isinstance(report, Acted | Installed):
            self.moments[f"{type(report).__name__} {report.stage} {report.node}"] = time.time()
        return super().take(report)


class _Log(CoordinatorLog):
    def replay(self, begin: Any = None) -> Coordinator:
        return super().replay(_Coordinator)


def main(approach: str, directory: str, name: str, settings: Mapping[str, str]) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if name == "coordinator":
        coordinator_process.CoordinatorProcess = CountingProcess  # type: ignore[misc]
        coordinator_process.CoordinatorLog = _Log  # type: ignore[misc]
        if approach in AT_ONCE:
            from benchmarks.isqd.holistic_sites import use_holistic_coordinator

            use_holistic_coordinator(AT_ONCE[approach])
        coordinator_process.run_coordinator(directory, stop=stopped.is_set)
        return
    if approach == "ISQD or ST":
        # Before Spark starts its Python workers.
        os.environ[AS_A_WHOLE] = str(Path(directory) / "as_a_whole")
        site.NodeOperator = SwitchedOperator  # type: ignore[misc]
    elif approach in AT_ONCE:
        from benchmarks.isqd.holistic_sites import HolisticOperator

        site.NodeOperator = HolisticOperator  # type: ignore[misc]
    site.run_site(directory, name, settings=settings, stop=stopped.is_set)


if __name__ == "__main__":
    # Not as __main__: Python workers are to find its classes.
    from benchmarks.isqd.spark_process import main as run

    run(sys.argv[1], sys.argv[2], sys.argv[3], dict(argument.split("=", 1) for argument in sys.argv[4:]))
