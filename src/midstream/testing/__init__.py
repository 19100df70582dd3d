"""The public test kit: everything needed to prove that a continuous query returns what it should.

Two judges recompute a query's result from its text, the oracle with DuckDB and the brute force row by row in
Python; the equivalence checks compare results as snapshots, the generators make random queries with random input and
random changes of their plans, and the scripted source plays written-down input, crashes included, into a run. Cases
come from Hypothesis, from a seed or from a recording (`choices`); `coverage` counts what migration cases have met, and
`soak` tries them by the thousand. Deployment cases put queries on a topology that changes, with faults. Needs the
packages duckdb and hypothesis, which midstream itself does not.
"""

from midstream.testing.brute_force import BruteForceError, brute_force_snapshots
from midstream.testing.choices import Choices, HypothesisChoices, Rejected, ReplayedChoices, SeededChoices
from midstream.testing.coverage import Coverage
from midstream.testing.deployment_cases import DeploymentCase, QueryCase
from midstream.testing.deployment_steps import Change, CrashCoordinator, CrashNode, Flap, Replan, Step
from midstream.testing.equivalence import BagDifference, assert_same_bag, assert_snapshot_equivalent, compare_bags
from midstream.testing.generators import (
    CONDITIONS,
    JOIN_OPERATORS,
    OPERATORS,
    WINDOWS,
    Scenario,
    random_scenario,
    scenarios,
)
from midstream.testing.generators_migrations import migration_cases, random_case
from midstream.testing.migration_cases import STRATEGIES, Migrate, MigrationCase, Rebuild
from midstream.testing.oracle import OracleError, join_intervals, snapshots
from midstream.testing.scripted_source import ABORT, Push, heartbeat, play, script, whole_input
from midstream.testing.snapshot_series import SnapshotSeries

__all__ = [
    "ABORT",
    "CONDITIONS",
    "JOIN_OPERATORS",
    "OPERATORS",
    "STRATEGIES",
    "WINDOWS",
    "BagDifference",
    "BruteForceError",
    "Change",
    "Choices",
    "Coverage",
    "CrashCoordinator",
    "CrashNode",
    "DeploymentCase",
    "Flap",
    "HypothesisChoices",
    "Migrate",
    "MigrationCase",
    "OracleError",
    "Push",
    "QueryCase",
    "Rebuild",
    "Rejected",
    "Replan",
    "ReplayedChoices",
    "Scenario",
    "SeededChoices",
    "SnapshotSeries",
    "Step",
    "assert_same_bag",
    "assert_snapshot_equivalent",
    "brute_force_snapshots",
    "compare_bags",
    "heartbeat",
    "join_intervals",
    "migration_cases",
    "play",
    "random_case",
    "random_scenario",
    "scenarios",
    "script",
    "snapshots",
    "whole_input",
]
