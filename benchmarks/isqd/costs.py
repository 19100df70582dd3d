"""What things cost in the simulated figures: two sets, one fitted to the paper's numbers, one measured on Spark.

**Fitted to the paper** (NebulaStream, one server with 64 cores). Only the quiet latency and the baselines' absolute
numbers were fitted; ISQD's numbers and all ratios are read off.

- a hop: so that a row needs 5.7 ms from a device by way of two hops to the cloud while nothing changes (figure 7);
- a call from the coordinator to a node: 5.2 ms of its thread, because HSQD with 2 sources takes 128 s for 120 × 10
  redeployments, which is 107 ms for 5 fragments of 4 calls;
- threads: 1 (HSQD) or 8 (HCQD, ISQD), the published settings;
- 64 cores, those of the paper's server: when more nodes work at once, each takes longer;
- assumed, not fitted: 0.1 µs per tuple at each node (the cloud node is then busy for 16 % of the time with 1.6 million
  tuples/s), 0.1 ms for a node's step, 0.2 ms for a message from or to the coordinator, 1 ms for planning a query.

HCQD was not used for the fit: with 2 sources it takes 28 s here and 25 s in the paper.

**Measured on Spark**: a node steps with the micro-batches of its site, of which none is shorter than 0.3 s
(``results/spark_fixed_cost.json``); a row costs 0.7 µs (1.4 million packed rows/s into the operator); a control message
waits for the next micro-batch, half of one in the mean. Assumed: 1 ms for a call (writing a file) and for planning.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.deployment.simulation import Costs

__all__ = ["FITTED", "MEASURED", "CostSet"]


@dataclass(frozen=True)
class CostSet:
    """Costs of nodes, coordinator and links."""

    name: str
    quiet_ms: float | None
    """From a device to the cloud, two hops, while nothing changes; None: a hop takes no time."""
    step_ms: float
    tuple_us: float
    control_ms: float
    call_ms: float
    plan_ms: float
    ask_again_ms: float
    cores: int | None
    tuple_bytes: int = 32

    def hop_ms(self, tuples_per_row: float) -> float:
        """A hop's share of the quiet latency, less what three nodes need for a row."""
        if self.quiet_ms is None:
            return 0.0
        return (self.quiet_ms - 3 * (self.step_ms + self.tuple_us * tuples_per_row / 1000)) / 2

    def costs(self, threads: int, tuples_per_row: float, cores: int | None) -> Costs:
        """For a coordinator with so many threads, and rows that each stand for so many tuples."""
        return Costs(
            step=self.step_ms,
            row=self.tuple_us * tuples_per_row / 1000,
            control=self.control_ms,
            plan=self.plan_ms,
            call=self.call_ms,
            threads=threads,
            cores=cores,
            ask_again=self.ask_again_ms,
        )


FITTED = CostSet("fitted to the paper", 5.7, 0.1, 0.1, 0.2, 5.2, 1.0, 1000.0, 64)
MEASURED = CostSet("measured on Spark", None, 304.0, 0.7, 152.0, 1.0, 1.0, 2000.0, None)
