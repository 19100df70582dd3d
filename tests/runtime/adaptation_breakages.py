"""Faults in the adaptation of queries on Spark, as those in ``tests.runtime.breakages``.

python -m tests.runtime.adaptation_breakages
"""

from __future__ import annotations

import sys

from tests.runtime.breakages import DURABLE, LIVE, REPORTING, fault, main

DRIVER, TESTS = "runtime/plan_adaptation.py", "tests/runtime/test_plan_adaptation.py"
CELL, PAUSE, CONTROLLER = "adaptation/cell_measuring.py", "adaptation/pause.py", "adaptation/controller.py"
MEASURING, WHEN = "adaptation/measuring.py", "tests/adaptation/test_measuring.py"
RUNNING, CELLS = "tests/adaptation/test_failing.py", "tests/runtime/test_measuring_cells.py"

ALL = (
    fault(
        "how a cell measures is forgotten by a restart", DURABLE,
        "self._commands.adaptation = stored.manifest.adaptation", "pass",
        f"{TESTS}::test_measuring_is_switched_by_a_command_and_outlives_the_process",
    ),
    fault(
        "sizes are reported again and again", CELL,
        "        self.sizes = None\n        if self._batches > 1", "        if self._batches > 1",
        f"{TESTS}::test_a_cell_reports_sizes_when_it_has_measured_them",
    ),
    fault(
        "a repeated micro-batch counts twice", DRIVER,
        "if known is not None and figures.batches <= known.batches:", "if False:",
        f"{TESTS}::test_a_repeated_micro_batch_counts_once",
    ),
    fault(
        "the first cell decides before the others have reported", DRIVER,
        "if len(self._reported) == self._count:", "if True:",
        f"{TESTS}::test_the_cell_with_all_the_work_decides",
    ),
    fault(
        "cells without rows are waited for", DRIVER,
        "if number in self._reported:", "if False:",
        f"{TESTS}::test_cells_without_rows_are_not_waited_for",
    ),
    fault(
        "a decision is made while a command is on its way", REPORTING,
        " or any(not migration.is_over for migration in history)", "",
        f"{TESTS}::test_nothing_is_decided_without_new_sizes_or_while_something_is_in_progress",
    ),
    fault(
        "a decision is made while just-in-time processing is switched", REPORTING,
        "if all(self._outcomes.of(number).is_over for number in self._changes.switches(self.query)):", "if True:",
        f"{TESTS}::test_nothing_is_decided_without_new_sizes_or_while_something_is_in_progress",
    ),
    fault(
        "a person's change pins nothing", DRIVER,
        "if chosen and not controller.is_pinned:", "if False:",
        f"{TESTS}::test_a_change_of_a_person_pins_the_plan_until_adaptation_is_asked_for",
    ),
    fault(
        "a change that was refused pins the plan", DRIVER,
        ' and m.state != "refused"', "",
        f"{TESTS}::test_a_change_that_a_cell_refused_pins_nothing",
    ),
    fault(
        "a decision that was not noted is forgotten", DRIVER,
        "            self._adopt(self._controller)\n", "",
        f"{TESTS}::test_a_decision_that_was_submitted_but_not_noted_is_known_after_a_restart",
    ),
    fault(
        "a decision overrides a command that it has not seen", DRIVER,
        "metrics, decision, after=last_command", "metrics, decision",
        f"{TESTS}::test_a_command_that_comes_at_the_same_time_is_first",
    ),
    fault(
        "another query's decisions are taken for this one's", DRIVER,
        "controller = self._replace(controller.policy, keep=False)", "pass",
        f"{TESTS}::test_another_query_in_the_same_directory_begins_with_nothing",
    ),
    fault(
        "coefficients are measured anew after a restart", DRIVER,
        "chosen.coefficients or known or calibrate()", "chosen.coefficients or calibrate()",
        f"{TESTS}::test_regret_and_correction_and_coefficients_outlive_the_process",
    ),
    fault(
        "the log grows for ever", DRIVER,
        "if len(self._entries) > 2 * MOST_DECISIONS:", "if False:",
        f"{TESTS}::test_the_log_is_bounded_and_a_torn_line_is_nothing",
    ),
    fault(
        "a failing measurement fails the push", PAUSE,
        "except Exception as problem:", "except ArithmeticError as problem:",
        f"{RUNNING}::test_a_failing_measurement_does_not_fail_the_push",
    ),
    fault(
        "a failing measurement fails the cell", PAUSE,
        "except Exception as problem:", "except ArithmeticError as problem:",
        f"{CELLS}::test_a_cell_whose_measuring_fails_goes_on",
    ),
    fault(
        "the driver decides while a cell cannot measure", DRIVER,
        "            self._pause.extend(metrics.batches)\n", "            pass\n",
        f"{CELLS}::test_the_driver_keeps_the_plan_while_a_cell_cannot_measure",
    ),
    fault(
        "adaptation does not pause after a failure", PAUSE,
        "return push >= self._until", "return True",
        f"{RUNNING}::test_a_failing_measurement_does_not_fail_the_push",
    ),
    fault(
        "what will be lost until the next decision does not count", CONTROLLER,
        "soon = self._lost_soon(plan, saving, compared)", "soon = 0.0",
        "tests/adaptation/test_controller.py::test_a_plan_is_changed_when_the_time_lost_exceeds_the_cost_of_the_change",
    ),
    fault(
        "the fastest cell decides", CONTROLLER,
        "slowest = work.index(max(work))", "slowest = work.index(min(work))",
        f"{CELLS}::test_the_slowest_cell_decides_and_is_named",
    ),
    fault(
        "rows sent to several cells count several times", "runtime/progress.py",
        "rows / self._copies_in.get(window, 1)", "rows",
        "tests/runtime/test_stream_statistics.py",
    ),
    fault(
        "a cell with a long span counts for more", "adaptation/measured_sizes.py",
        "share * there / sizes.rows if sizes.rows and there else 1.0", "1.0",
        f"{CELLS}::test_the_sizes_of_all_cells_are_put_together",
    ),
    fault(
        "dead tuples count among the hot keys", "engine/state/join_state.py",
        "alive = run.codes[run.tuples[:, TO] > max(ended, self._frontier)]", "alive = run.codes",
        "tests/adaptation/test_hot_keys.py",
    ),
    fault(
        "the next rows are expected to lose as much as the latest", CONTROLLER,
        "sizes = compared.sizes.later(compared.latest_rows / max(1, compared.sizes.rows))", "sizes = compared.sizes",
        "tests/adaptation/test_controller.py::test_after_a_sudden_change_the_next_rows_are_expected_to_lose_more",
    ),
    fault(
        "sizes one span later are those of full windows", "planning/cost/sizes.py",
        "if math.isinf(spans):", "if True:",
        "tests/adaptation/test_sampling.py::test_after_a_sudden_change_the_sizes_to_come_are_foreseen",
    ),
    fault(
        "changes that other gates stop are measured again and again", CONTROLLER,
        "cost.seconds if cost is not None and is_delayed else None", "cost.seconds if cost is not None else None",
        "tests/adaptation/test_controller.py::test_only_a_change_that_its_cost_delays_is_expected",
    ),
    fault(
        "sizes of whole windows do not count as such", CONTROLLER,
        "0.0 if cells[slowest].are_of_windows else ", "",
        "tests/adaptation/test_braces.py::test_sizes_of_whole_windows_need_no_braces_for_frequent_changes",
    ),
    fault(
        "a join that becomes expensive waits for its turn", MEASURING,
        "if self._excess >= self._patience * _LEAST_EXCESS * cost:", "if False:",
        f"{WHEN}::test_a_join_that_becomes_expensive_is_measured_at_once",
    ),
    fault(
        "measurements that change nothing go on", MEASURING,
        "self._patience *= 2", "pass",
        f"{WHEN}::test_measurements_that_change_nothing_become_rare",
    ),
    fault(
        "measurements cost nothing", MEASURING,
        "self._budget = max(0.0, self._budget - cost)", "pass",
        f"{WHEN}::test_measurements_take_their_share",
    ),
    fault(
        "streams whose plan is changed frequently are not volatile", MEASURING,
        "return recent >= _FREQUENT_CHANGES or", "return",
        f"{WHEN}::test_a_plan_that_is_changed_frequently_makes_streams_volatile_for_a_while",
    ),
    fault(
        "volatile streams are measured as often as others", MEASURING,
        "if self.is_volatile and self._rows < _VOLATILE_SHARE * self._held_rows:", "if False:",
        f"{WHEN}::test_streams_that_change_all_the_time_are_measured_twice_per_window_at_most",
    ),
    fault(
        "streams are never volatile", MEASURING,
        "self._rows_of_change > _LONGEST_CHANGE * self._held_rows", "False",
        f"{WHEN}::test_volatile_streams_are_measured_over_a_whole_window",
    ),
    fault(
        "one change makes streams volatile", MEASURING,
        "_LONGEST_CHANGE = 0.5", "_LONGEST_CHANGE = 0.0",
        f"{WHEN}::test_one_sudden_change_is_measured_by_itself",
    ),
    fault(
        "streams stay volatile", MEASURING,
        "self._rows_since_jump, self._rows_of_change = None, 0", "pass",
        f"{WHEN}::test_streams_that_no_longer_change_are_not_volatile",
    ),
    fault(
        "a change of plan forgets how far the inputs were", "adaptation/statistics.py",
        "if any(before.get(number) is not store for number, store in self._stores.items()):", "if True:",
        f"{WHEN}::test_a_change_of_plan_does_not_shorten_what_can_be_measured",
    ),
    fault(
        "the earliest marks are forgotten", "adaptation/statistics.py",
        "del self._marks[1 : MOST_MARKS // 2 : 2]", "del self._marks[0]",
        f"{WHEN}::test_many_pushes_in_a_window_can_be_measured_together",
    ),
    fault(
        "migrations soon after another may last", "adaptation/migration_cost.py",
        "possible = [cost for cost in possible if cost.is_at_once] or possible", "pass",
        "tests/adaptation/test_migration_cost.py::test_soon_after_another_change_the_migration_is_over_at_once",
    ),
    fault(
        "nothing is foreseen after a sudden change", "adaptation/sampling.py",
        "return min(_MOST_GROWTH, max(1 / _MOST_GROWTH, later / increment))", "return 1.0",
        "tests/adaptation/test_sampling.py::test_after_a_sudden_change_the_sizes_to_come_are_foreseen",
    ),
    fault(
        "a change costs as much as if all were looked for", "adaptation/migration_cost.py",
        "state.looked_for if is_partial else state.held", "state.held",
        "tests/adaptation/test_migration_cost.py::test_what_nobody_looks_for_is_not_computed",
    ),
    fault(
        "what is completed ahead is bounded by what is read alone", "migration/state_completion.py",
        "work = passed + self.computed - computed", "work = passed",
        "tests/migration/test_state_completion.py::test_completing_ahead_is_bounded_by_what_it_computes",
    ),
    fault(
        "cells are not told to measure", LIVE,
        "self._setup = msgspec.structs.replace(self._setup, adaptation=self._adaptation.policy)", "pass",
        "tests/spark/test_adapting.py",
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ALL))
