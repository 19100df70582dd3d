"""The public test kit: everything needed to prove that a continuous query returns what it should.

Two judges recompute a query's result from its text, the oracle with DuckDB and the brute force row by row in
Python; the equivalence checks compare results as snapshots, the generators make random queries with random input
for Hypothesis, and the scripted source plays written-down input, crashes included, into a run. Needs the packages
duckdb and hypothesis, which midstream itself does not.
"""

from midstream.testing.brute_force import BruteForceError, brute_force_snapshots
from midstream.testing.equivalence import BagDifference, assert_same_bag, assert_snapshot_equivalent, compare_bags
from midstream.testing.generators import (
    CONDITIONS,
    JOIN_OPERATORS,
    OPERATORS,
    WINDOWS,
    Scenario,
    scenarios,
)
from midstream.testing.oracle import OracleError, join_intervals, snapshots
from midstream.testing.scripted_source import ABORT, Push, heartbeat, play, script, whole_input
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "ABORT",
    "CONDITIONS",
    "JOIN_OPERATORS",
    "OPERATORS",
    "WINDOWS",
    "BagDifference",
    "BruteForceError",
    "OracleError",
    "Push",
    "Scenario",
    "SnapshotSeries",
    "assert_same_bag",
    "assert_snapshot_equivalent",
    "brute_force_snapshots",
    "compare_bags",
    "heartbeat",
    "join_intervals",
    "play",
    "scenarios",
    "script",
    "snapshots",
    "whole_input",
]
