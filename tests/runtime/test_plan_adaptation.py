"""Adaptation of a query on Spark, without Spark: what cells measure and send, what the driver decides and remembers."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream import Stream
from midstream.adaptation import Adaptation
from midstream.adaptation.controller import MOST_DECISIONS
from midstream.adaptation.measured_sizes import MeasuredSizes
from midstream.algebra.plan_json import plan_to_json
from midstream.migration.record import MigrationFigures
from midstream.planning.cost import BlockSizes, CostCoefficients, PlanSizes
from midstream.planning.join_order.join_graph import JoinGraph, bits
from midstream.planning.join_order.reorder_joins import join_blocks
from midstream.planning.partitioning import partition
from midstream.runtime import plan_adaptation
from midstream.runtime.control import ControlDirectory
from midstream.runtime.durable_cell import DurableCell
from midstream.runtime.messages import Adapt, CellFigures, CommandOutcome, Finish, Migrate, SwitchJustInTime, encode
from midstream.runtime.plan_adaptation import PlanAdaptation
from midstream.runtime.plan_changes import PlanChanges
from midstream.runtime.progress import Progress
from midstream.runtime.remote import RemoteQuery
from midstream.runtime.reporting import Report
from midstream.testing import assert_same_bag, assert_snapshot_equivalent, join_intervals, snapshots
from tests.cli.commanding import control_of
from tests.runtime.test_reporting import QUERY, figures
from tests.spark.simulated import FAULTS, QUERY_ID, Fault, LoneCell, SimulatedCluster, command

FIRST = "(o p) s"
POLICY = Adaptation(least_rows=1, deviations=0, regret=0, longest_pause=1e6, coefficients=CostCoefficients())
PATIENT = replace(POLICY, regret=1.0, strategies=("moving-state",))


def sizes(cheap: str, rows: int = 3_000) -> MeasuredSizes:
    """Sizes of the three joins of two inputs: few tuples where the pair is, many elsewhere."""
    (block,) = join_blocks(QUERY.plan(FIRST))
    names = JoinGraph.of(block).names
    increments = {1 << place: np.full(4, rows / 3) for place in range(3)}
    for inputs in (0b011, 0b101, 0b110):
        pair = {name for place, name in enumerate(names) if inputs >> place & 1}
        increments[inputs] = np.full(4, rows / 30 if pair == set(cheap) else rows * 30.0)
    increments[0b111] = np.full(4, rows / 30)
    return MeasuredSizes.of(PlanSizes(rows, {block.identity: BlockSizes(names, (rows / 3,) * 3, increments)}))


class Driver:
    """The driver of a query; several on one control directory are restarts."""

    def __init__(self, folder, adapt=None, cells=1):
        self.control = control_of(folder, FIRST)
        has_begun = bool(self.control.claims().queries)
        first = QUERY.plan(FIRST)
        self.changes = PlanChanges(QUERY, first, self.control)
        self.progress = Progress(QUERY.plan(), partition(QUERY.plan(), cells), self.control.mark)
        self.adaptation = PlanAdaptation(self.control, self.changes, cells)
        self.report = Report(first, self.progress, self.control, self.changes, None, self.adaptation)
        if adapt is not None:
            self.adaptation.choose(adapt, self.report.query, has_begun)

    def takes(self, cell=0, batches=1, **others):
        """A cell reports a micro-batch."""
        taken = [figures(cell, **{"plan": FIRST, "batches": batches, "received": {"w": 3_000 * batches}, **others})]
        self.progress.take(taken)
        self.adaptation.take(taken)
        self.report.adapt()
        self.report.write()

    def outcome(self, number, state="completed"):
        done = MigrationFigures(started=1.0, ended=2.0, rows_recomputed=100)
        return CommandOutcome(directory=self.control.mark, number=number, state=state, migration=1, figures=done)

    @property
    def outcomes(self):
        return [decision.outcome for decision in self.adaptation.decisions()]

    def migrations(self):
        return [command.action for command in self.control.commands() if isinstance(command.action, Migrate)]


def test_sizes_arrive_as_they_were_measured():
    sent = figures(0, sizes=sizes("ps"))
    received = msgspec.json.decode(encode(sent), type=CellFigures)
    assert received == sent
    (block,) = received.sizes.sizes().blocks.values()
    assert block.increments[0b111].tolist() == [100.0] * 4


def test_sizes_of_a_hundred_inputs_arrive():
    names = tuple(f"s{place}" for place in range(100))
    increments = {1 << place: np.ones(2) for place in range(100)} | {(1 << 100) - 1: np.full(2, 3.0)}
    sent = MeasuredSizes.of(PlanSizes(7, {"b": BlockSizes(names, (1.0,) * 100, increments)}))
    received = msgspec.json.decode(encode(sent), type=MeasuredSizes).sizes().blocks["b"]
    assert {inputs: found.tolist() for inputs, found in received.increments.items()} == {
        inputs: found.tolist() for inputs, found in increments.items()
    }


def test_a_bad_plan_is_replaced_by_a_command_that_contains_the_decision(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(sizes=sizes("ps"))
    (decision,) = driver.adaptation.decisions()
    (change,) = driver.migrations()
    assert (decision.number, decision.outcome, decision.plan) == (1, "changed", "o p s")
    assert change.decision == decision
    (migration,) = driver.report.history()
    assert migration.decision == 1
    assert set(migration.new_plan.explain().split()) == set(QUERY.plan("o (p s)").explain().split())
    (entry,) = driver.control.status().history
    assert (entry.decision, entry.strategy) == (1, decision.strategy)


def test_nothing_is_decided_without_new_sizes_or_while_something_is_in_progress(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1)
    assert driver.outcomes == []
    driver.takes(batches=2, sizes=sizes("ps"))
    # The command has not been taken up.
    driver.takes(batches=3, sizes=sizes("ps"))
    running = driver.outcome(1, "running")
    driver.takes(batches=4, sizes=sizes("os"), commands=[running], migrating=True)
    assert driver.outcomes == ["changed"]
    # It is done, and the plan is another one, with which nothing has been measured yet.
    driver.takes(batches=5, plan="o (p s)", commands=[driver.outcome(1)])
    assert driver.outcomes == ["changed"]
    driver.takes(batches=6, plan="o (p s)", commands=[driver.outcome(1)], sizes=sizes("ps"))
    assert driver.outcomes == ["changed", "kept"]
    driver.control.write(SwitchJustInTime(options=None), "q1")
    driver.takes(batches=7, plan="o (p s)", commands=[driver.outcome(1)], sizes=sizes("os"))
    assert driver.outcomes == ["changed", "kept"]
    driver.takes(batches=8, plan="o (p s)", commands=[driver.outcome(1), driver.outcome(2)], sizes=sizes("os"))
    assert driver.outcomes == ["changed", "kept", "changed"]


def test_a_restart_has_the_same_decisions_and_makes_none_again(tmp_path):
    at_once = Driver(tmp_path / "at once", PATIENT)
    at_once.takes(sizes=sizes("ps"))
    (first,) = at_once.adaptation.decisions()
    # Three and a half times what is lost until the first consideration; as much again is expected until the next one.
    tmp_path = tmp_path / "later"
    driver = Driver(tmp_path, replace(PATIENT, regret=3.5 * first.regret / first.migration))
    for batches in range(1, 20):
        driver.takes(batches=batches, sizes=sizes("ps"))
        if driver.migrations():
            break
    assert driver.outcomes == ["kept"] * (batches - 1) + ["changed"]
    assert batches == 3
    again = Driver(tmp_path)
    assert again.adaptation.decisions() == driver.adaptation.decisions()
    assert again.adaptation.policy == driver.adaptation.policy
    # The last micro-batch is replayed.
    again.takes(batches=batches, sizes=sizes("ps"))
    again.takes(batches=batches + 1, plan="o (p s)", commands=[again.outcome(1)])
    assert len(again.migrations()) == 1
    assert again.adaptation.decisions() == driver.adaptation.decisions()


def test_regret_and_correction_and_coefficients_outlive_the_process(tmp_path, monkeypatch):
    measured = CostCoefficients(tuple_in=7e-8)
    monkeypatch.setattr(plan_adaptation, "calibrate", lambda: measured)
    driver = Driver(tmp_path, replace(PATIENT, coefficients=None, regret=1e9))
    driver.takes(batches=1, sizes=sizes("ps"))
    monkeypatch.setattr(plan_adaptation, "calibrate", lambda: pytest.fail("it was measured before"))
    before = driver.control.adaptation()[-1]
    assert before.state.regret > 0
    assert before.policy.coefficients == measured
    again = Driver(tmp_path)
    again.takes(batches=1)
    assert again.control.adaptation()[-1].state == before.state
    again.takes(batches=2, sizes=sizes("ps"))
    after = again.control.adaptation()[-1]
    assert after.state.regret == pytest.approx(2 * before.state.regret)
    # Asked for in another way, it goes on with what it knows.
    third = Driver(tmp_path, "advise")
    assert third.adaptation.policy.coefficients == measured
    assert third.control.adaptation()[-1].state == after.state


def test_what_a_migration_really_computed_corrects_what_the_next_one_should_cost(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1, sizes=sizes("ps", 300_000))
    assert driver.control.adaptation()[-1].awaited == 1
    expected = driver.control.adaptation()[-1].state.expected
    assert expected > 1_000
    again = Driver(tmp_path)
    again.takes(batches=2, plan="o (p s)", commands=[again.outcome(1)])
    entry = again.control.adaptation()[-1]
    # A hundred tuples instead of many: at most a quarter is believed at once.
    assert (entry.awaited, entry.state.expected, entry.state.correction) == (None, None, 0.5)


def test_a_change_of_a_person_pins_the_plan_until_adaptation_is_asked_for(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1)
    RemoteQuery(tmp_path).migrate("(o s) p")
    for batches in (2, 3):
        driver.takes(batches=batches, plan="(o s) p", commands=[driver.outcome(1)], sizes=sizes("ps"))
    assert driver.outcomes == ["advised", "advised"]
    assert driver.control.adaptation()[-1].state.is_pinned
    again = Driver(tmp_path)
    again.takes(batches=4, plan="(o s) p", commands=[again.outcome(1)], sizes=sizes("ps"))
    assert again.outcomes == ["advised"] * 3
    assert again.adaptation.is_pinned
    again.adaptation.choose(POLICY, "q1", has_begun=True)
    again.takes(batches=5, plan="(o s) p", commands=[again.outcome(1)], sizes=sizes("ps"))
    assert again.outcomes == ["advised"] * 3 + ["changed"]


def test_a_change_that_a_cell_refused_pins_nothing(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1)
    RemoteQuery(tmp_path).migrate("(o s) p")
    driver.takes(batches=2, commands=[driver.outcome(1, "refused")], sizes=sizes("ps"))
    assert driver.outcomes == ["changed"]


def test_the_cell_with_all_the_work_decides(tmp_path):
    driver = Driver(tmp_path, POLICY, cells=2)
    # In the first cell (o s) p would be best, but few rows come there, and of one stream none.
    cold = replace(sizes("os"), silent=("p",))
    driver.takes(0, 1, sizes=cold, received={"w": 30})
    assert driver.outcomes == []
    driver.takes(1, 1, sizes=sizes("ps"), received={"w": 30_000})
    (decision,) = driver.adaptation.decisions()
    assert (decision.outcome, decision.best.replace("(s p)", "(p s)")) == ("changed", "o (p s)")


def test_cells_without_rows_are_not_waited_for(tmp_path):
    driver = Driver(tmp_path, POLICY, cells=2)
    driver.takes(0, 1, sizes=sizes("ps"))
    assert driver.outcomes == []
    # The next micro-batch: the one before is complete, though the other cell has never reported.
    driver.takes(0, 2, sizes=sizes("ps"))
    assert driver.outcomes == ["changed"]


def test_a_repeated_micro_batch_counts_once(tmp_path):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9))
    for batches in (1, 1, 2, 2, 2):
        driver.takes(batches=batches, sizes=sizes("ps"))
    first, second = driver.adaptation.decisions()
    assert second.regret == pytest.approx(2 * first.regret)


def test_a_decision_that_was_submitted_but_not_noted_is_known_after_a_restart(tmp_path, monkeypatch):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1)
    with monkeypatch.context() as broken:
        broken.setattr(type(driver.control), "append_adaptation", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            driver.takes(batches=2, sizes=sizes("ps"))
    again = Driver(tmp_path)
    assert again.outcomes == ["changed"]
    assert again.control.adaptation()[-1].state.number == 1
    again.takes(batches=2, sizes=sizes("ps"))
    assert (again.outcomes, len(again.migrations())) == (["changed"], 1)


def test_what_could_not_be_written_is_written_with_the_next_decision(tmp_path, monkeypatch):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9))
    driver.takes(batches=1, sizes=sizes("ps"))
    with monkeypatch.context() as broken:
        broken.setattr(type(driver.control), "append_adaptation", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            driver.takes(batches=2, sizes=sizes("ps"))
    driver.takes(batches=3, sizes=sizes("ps"))
    assert Driver(tmp_path).adaptation.decisions() == driver.adaptation.decisions()
    assert len(driver.adaptation.decisions()) == 3


def test_without_the_log_the_decisions_of_commands_are_known(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1, sizes=sizes("ps"))
    (tmp_path / "adaptation.jsonl").unlink()
    again = Driver(tmp_path, POLICY)
    assert again.adaptation.decisions() == driver.adaptation.decisions()


def test_a_command_that_comes_at_the_same_time_is_first(tmp_path, monkeypatch):
    driver = Driver(tmp_path, POLICY)
    considered = plan_adaptation.Controller.consider

    def consider(controller, *arguments):
        RemoteQuery(tmp_path).migrate("(o s) p")
        return considered(controller, *arguments)

    monkeypatch.setattr(plan_adaptation.Controller, "consider", consider)
    driver.takes(batches=1, sizes=sizes("ps"))
    (change,) = driver.migrations()
    assert change.decision is None
    (decision,) = driver.adaptation.decisions()
    assert (decision.outcome, "at the same time" in decision.reason) == ("kept", True)


def test_another_query_in_the_same_directory_begins_with_nothing(tmp_path):
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9))
    driver.takes(batches=1, sizes=sizes("ps"))
    assert driver.outcomes == ["kept"]
    again = Driver(tmp_path)
    again.takes(batches=1, query="q2", sizes=sizes("ps"))
    assert [decision.number for decision in again.adaptation.decisions()] == [1]
    assert again.control.adaptation()[-1].query == "q2"


def test_cells_are_told_of_another_policy_only_if_it_is_another(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1)
    Driver(tmp_path, POLICY)
    assert driver.control.commands() == []
    Driver(tmp_path, "off")
    (off,) = driver.control.commands()
    assert (off.action, off.query) == (Adapt(policy=None), "q1")
    assert Driver(tmp_path).adaptation.policy is None
    Driver(tmp_path, POLICY)
    assert driver.control.commands()[-1].action == Adapt(policy=POLICY)


def test_the_log_is_bounded_and_a_torn_line_is_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(plan_adaptation, "MOST_DECISIONS", 5)
    driver = Driver(tmp_path, replace(PATIENT, regret=1e9))
    for batches in range(1, 30):
        driver.takes(batches=batches, sizes=sizes("ps"))
        assert len(driver.control.adaptation()) <= 11
    path = tmp_path / "adaptation.jsonl"
    known = driver.control.adaptation()
    with path.open("a") as file:
        file.write('{"format": 9}\nnonsense\n{"format": 7, "query"')
    assert driver.control.adaptation() == known
    again = Driver(tmp_path)
    again.takes(batches=29, query="q1")
    again.takes(batches=30, sizes=sizes("ps"))
    assert path.read_text().endswith("}\n")
    assert [entry.decision.number for entry in again.control.adaptation()][-2:] == [29, 30]
    assert again.adaptation.decisions()[-1].number == 30
    assert len(driver.adaptation.decisions()) == 29 <= MOST_DECISIONS
    assert "ignored" in caplog.text


# Cells

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
STREAMS = [Stream(name, SCHEMA, event_time="ts") for name in "abc"]
TEXT = "SELECT a.k FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.k = b.k AND b.k = c.k"
EAGER = replace(POLICY, measure_every=0, measure_share=1e6)


def batch(number, keys=(9, 9, 9)):
    generator = np.random.default_rng(number)
    return {
        name: pa.table(
            {"ts": np.sort(generator.integers(0, 10, 50)) + 10 * number, "k": generator.integers(0, most, 50)}
        )
        for name, most in zip("abc", keys, strict=True)
    }


def lone(adaptation):
    cell = LoneCell(TEXT, STREAMS, "(a b) c")
    cell.setup = replace(cell.setup, adaptation=adaptation)
    cell.durable = DurableCell.from_backend(cell.setup, cell.backend)
    return cell


def test_a_cell_reports_sizes_when_it_has_measured_them():
    cell = lone(EAGER)
    found = []
    for number in range(4):
        cell.run(batch(number))
        found.append(cell.durable.figures())
    # The first span begins with the query.
    assert [one.sizes is not None for one in found] == [True, True, True, True]
    assert [one.rows_received for one in found] == [150, 300, 450, 600]
    measured = found[-1].sizes.sizes()
    assert measured.rows >= 150
    (block,) = measured.blocks.values()
    assert {frozenset(block.names[place] for place in bits(inputs)) for inputs in block.counted} == {
        frozenset("ab"),
        frozenset("abc"),
    }
    cell.run({})
    assert cell.durable.figures().sizes is None
    assert lone(None).durable.figures().sizes is None


def test_measuring_is_switched_by_a_command_and_outlives_the_process():
    cell = lone(None)
    cell.run(batch(0))
    cell.run(batch(1), [command(1, Adapt(policy=EAGER))])
    cell.rebuild()
    measured = []
    for number in range(2, 7):
        cell.run(batch(number), [command(2, Adapt(policy=None))] if number == 6 else [])
        measured.append(cell.durable.figures().sizes is not None)
    assert measured[-2:] == [True, False]
    cell.rebuild()
    cell.run(batch(7))
    cell.run(batch(8))
    assert cell.durable.figures().sizes is None


def test_a_restored_cell_has_received_as_many_rows():
    cell = lone(EAGER)
    for number in range(12):
        cell.run(batch(number))
        cell.rebuild()
    assert cell.durable.figures().rows_received == 12 * 150


# Cells and driver together


NERVOUS = replace(EAGER, least_gain=1, least_saving=0, sample_rows=16)
DISTINCT = "SELECT DISTINCT a.k AS k FROM a [RANGE 40], b [RANGE 40], c [RANGE 40] WHERE a.k = b.k AND b.k = c.k"


@pytest.mark.parametrize("seed", range(3))
def test_results_and_decisions_stay_right_while_everything_fails(tmp_path, seed):
    """A policy that changes the plan as often as it can, on a cluster whose tasks, workers and driver are lost."""
    driver, results, tables = played(tmp_path, seed, TEXT, NERVOUS)
    assert_same_bag(results, join_intervals(TEXT, STREAMS, tables))
    assert changes(driver)


@pytest.mark.parametrize("seed", range(3))
def test_cells_change_between_shapes_while_everything_fails(tmp_path, seed):
    """An operator costs nothing by itself: few rows are reason enough for a distinct below the joins."""
    policy = replace(NERVOUS, coefficients=CostCoefficients(operator=0.0, replacement=0.0))
    driver, results, tables = played(tmp_path, seed, DISTINCT, policy)
    assert_snapshot_equivalent(results, snapshots(DISTINCT, STREAMS, tables))
    assert any("distinct below the joins" in change.best for change in changes(driver))


def played(tmp_path, seed, text, policy):
    """The driver, the results, and all rows."""
    chance = random.Random(seed)
    cluster = SimulatedCluster(text, STREAMS, "(a b) c", cells=2, seed=seed)
    control = ControlDirectory(tmp_path)
    control.create(cluster.setup.query, plan_to_json(cluster.first_plan))
    driver = start(control, cluster)
    driver.adaptation.choose(policy, QUERY_ID, has_begun=True)
    taken, whole = 0, []
    for number in range(14):
        whole.append(batch(number, keys=[chance.choice([2, 8, 30]) for _ in "abc"]))
        faults = [Fault(kind, chance.randrange(2)) for kind in FAULTS if chance.random() < 0.1]
        commands = [command for command in control.commands() if command.number > taken]
        taken = max([taken, *(command.number for command in commands)])
        cluster.run(whole[-1], commands, faults)
        if any("restart" in fault.kind for fault in faults):
            before, driver = driver, start(control, cluster)
            assert driver.adaptation.decisions() == before.adaptation.decisions()
        driver.progress.take(cluster.figures)
        driver.adaptation.take(cluster.figures)
        driver.report.adapt()
        driver.report.write()
    cluster.run({}, [*(c for c in control.commands() if c.number > taken), command(10**6, Finish())])
    tables = {name: pa.concat_tables([rows[name] for rows in whole]) for name in "abc"}
    return driver, cluster.results, tables


def changes(driver):
    """The decisions that changed the plan; all are numbered, and each has led to a migration."""
    numbers = [decision.number for decision in driver.adaptation.decisions()]
    assert numbers == list(range(1, len(numbers) + 1))
    changed = [decision for decision in driver.adaptation.decisions() if decision.outcome == "changed"]
    assert [migration.decision for migration in driver.report.history()] == [decision.number for decision in changed]
    return changed


def start(control, cluster):
    """What ``LiveQuery`` does, apart from Spark."""
    driver = Driver.__new__(Driver)
    driver.control = control
    driver.changes = PlanChanges(cluster.query, cluster.first_plan, control)
    driver.progress = Progress(cluster.query.plan(), cluster.partitioning, control.mark)
    driver.adaptation = PlanAdaptation(control, driver.changes, 2)
    driver.report = Report(cluster.first_plan, driver.progress, control, driver.changes, None, driver.adaptation)
    return driver
