"""Faults put into the code on purpose that random cases do not come to: the tests named beside each must find it.

Most concern the runtime and its part on Spark: whose a command is, what counts as ended, what is known after a restart,
and what is refused. Some concern just-in-time processing. Each breakage replaces one piece of text of the source, in a
copy of the whole tree; then the tests are run there.

    python -m tests.runtime.breakages              all of them, with the seconds that the tests took
    python -m tests.runtime.breakages segment      those whose file, name or tests contain the word

Exit code 1 if one survives.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.property.breakages import ROOT, Breakage, sources

TESTS_FAILED = 1
"""What pytest says if a test failed. All other codes but 0 mean that it could not run the tests."""


@dataclass(frozen=True)
class RuntimeBreakage(Breakage):
    """A fault that named tests find: files, or single tests of them, as pytest takes them."""

    cases: str = ""
    tests: tuple[str, ...] = ()


def fault(name: str, file: str, right: str, wrong: str, *tests: str) -> RuntimeBreakage:
    return RuntimeBreakage(name, file, right, wrong, tests=tests)


CELL, CACHE, HOST = "runtime/cell.py", "runtime/cell_cache.py", "runtime/cell_host.py"
CONTROL, HANDLER, MESSAGES = "runtime/control.py", "runtime/command_handler.py", "runtime/messages.py"
DURABLE, STORED, SEGMENTS = "runtime/durable_cell.py", "runtime/state_backend.py", "runtime/segment_log.py"
PROGRESS, OUTCOMES, REPORTING = "runtime/progress.py", "runtime/migration_outcomes.py", "runtime/reporting.py"
PACK = "runtime/pack.py"
COUNTERS, WATERMARK, FINGERPRINT = "runtime/stream_counters.py", "runtime/watermark.py", "runtime/query_fingerprint.py"
OPERATOR, PACKING, LIVE, SINK_LOG = (
    "spark/cell_work.py",
    "spark/packing.py",
    "spark/live_query.py",
    "spark/sink_log.py",
)

CONTROL_TESTS, REPORTING_TESTS = "tests/runtime/test_control.py", "tests/runtime/test_reporting.py"
DURABLE_TESTS, DAMAGE_TESTS = "tests/runtime/test_durable_cell.py", "tests/runtime/test_damaged_checkpoint.py"
HANDLER_TESTS, HOST_TESTS = "tests/runtime/test_command_handler.py", "tests/runtime/test_cell_host.py"
WATERMARK_TESTS, INGEST_TESTS = "tests/runtime/test_watermark.py", "tests/runtime/test_ingest.py"
CLI_TESTS, PACKING_TESTS = "tests/cli/test_control.py", "tests/spark/test_packing.py"
PACK_TESTS = "tests/runtime/test_pack.py"
MADE_AGAIN = f"{DURABLE_TESTS}::test_a_cell_made_again_after_every_batch_does_and_writes_the_same"
ENDED = f"{DURABLE_TESTS}::test_that_a_migration_has_ended_is_known_after_a_restart"

COMMANDS = (
    fault(
        "commands are everybody's", CONTROL,
        "return command.directory == self.mark and claimed in (None, query)", "return True",
        CONTROL_TESTS,
    ),
    fault(
        "commands without an id are everybody's", CONTROL,
        "claimed = next((other for other, last in self.queries if command.number <= last), None)",
        "claimed = None",
        CONTROL_TESTS,
    ),
    fault(
        "commands that name another query are everybody's", CONTROL,
        "return command.query == query", "return True",
        CONTROL_TESTS,
    ),
    fault(
        "commands from before query.json was removed are obeyed", CONTROL,
        "return command.directory == self.mark and claimed in (None, query)", "return claimed in (None, query)",
        CONTROL_TESTS,
    ),
    fault(
        "cells obey commands to another query", OPERATOR,
        "commands = [command for command in commands if self._claims.is_for(command, query)]", "",
        f"{DURABLE_TESTS}::test_a_new_checkpoint_does_not_obey_commands_given_to_an_earlier_run",
    ),
    fault(
        "tasks do not know which query they are of", OPERATOR,
        'return None if context is None else context.getLocalProperty("sql.streaming.queryId")', "return None",
        "tests/spark/test_migrating.py::test_commands_are_obeyed_by_the_query_they_were_given_to",
    ),
    fault(
        "commands without a mark are accepted", MESSAGES,
        'directory: str\n    """The mark of the control directory',
        'directory: str = ""\n    """The mark of the control directory',
        CONTROL_TESTS,
    ),
    fault(
        "claims without the directory's mark are accepted", CONTROL,
        "self._claims_path.glob(_files_of(mark))", "self._claims_path.glob(_FILES)",
        CONTROL_TESTS,
    ),
    fault(
        "what became of another directory's commands is taken for this one's", PROGRESS,
        "if outcome.directory == self._directory:", "if True:",
        REPORTING_TESTS,
    ),
    fault(
        "commands with unknown fields are accepted", MESSAGES,
        "class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):",
        "class Message(msgspec.Struct, frozen=True):",
        CONTROL_TESTS,
    ),
    fault(
        "a malformed command ends the query", OPERATOR,
        "except MidstreamError as problem:", "except KeyError as problem:",
        f"{DURABLE_TESTS}::test_files_that_are_no_commands_reach_no_cell",
    ),
    fault(
        "a command that could not be read once is never read", CONTROL,
        "self._unreadable[path.name] = PathProblem(", "self._ignored[path.name] = PathProblem(",
        CONTROL_TESTS,
    ),
    fault(
        "a plan that says it is another query's is accepted", HANDLER,
        "if change.identity != self._query.identity:", "if False:",
        f"{DURABLE_TESTS}::test_a_plan_of_another_query_is_refused",
    ),
    fault(
        "a plan that computes something else is accepted", HANDLER,
        "if self._cell.windows.reads(plan) and not self._planned.has(plan):", "if False:",
        HANDLER_TESTS,
    ),
    fault(
        "obeyed commands are forgotten by a restart", DURABLE,
        "self._commands.restore(stored.manifest.commands)", "pass",
        f"{DURABLE_TESTS}::test_a_command_that_comes_again_is_carried_out_once",
    ),
    fault(
        "obeyed commands are known by their number alone", HANDLER,
        "if any(name == (known.directory, known.number) for known in self._outcomes):",
        "if any(command.number == known.number for known in self._outcomes):",
        f"{DURABLE_TESTS}::test_a_directory_of_its_own_numbers_commands_anew",
    ),
    fault(
        "a stream is idle though a row has come since", HANDLER,
        "counters.rows <= (math.inf if rows is None else rows)", "counters.rows >= 0",
        f"{DURABLE_TESTS}::test_silence_that_was_noticed_is_over_when_a_row_has_come",
    ),
)  # fmt: skip

REPORTS = (
    fault(
        "a migration has ended when all cells have figures of it", OUTCOMES,
        'len(cells) == count and all(cell.state == "completed" for cell in cells)',
        "len(cells) == count and all(cell.figures is not None for cell in cells)",
        REPORTING_TESTS,
    ),
    fault(
        "a migration has ended when one cell has ended it", OUTCOMES,
        'len(cells) == count and all(cell.state == "completed" for cell in cells)',
        'any(cell.state == "completed" for cell in cells)',
        REPORTING_TESTS,
    ),
    fault(
        "a migration has ended when all cells that report it have", OUTCOMES,
        'len(cells) == count and all(cell.state == "completed" for cell in cells)',
        'all(cell.state == "completed" for cell in cells)',
        REPORTING_TESTS,
    ),
    fault(
        "a cell has ended a migration as soon as it has begun", HANDLER,
        'state = "completed" if record.is_over else "running"', 'state = "completed"',
        f"{DURABLE_TESTS}::test_what_became_of_a_command_is_remembered",
    ),
    fault(
        "what cells reported of a migration before a restart is forgotten", OUTCOMES,
        "outcome = _together(before | reported, self._progress.cells)",
        "outcome = _together(reported, self._progress.cells)",
        REPORTING_TESTS,
    ),
    fault(
        "what another query did with a command is taken for this one's", OUTCOMES,
        "if query is not None and query != self._query:", "if False:",
        REPORTING_TESTS,
    ),
    fault(
        "the query has finished when the cells that report have", PROGRESS,
        "finished=watermark == NEVER and len(cells) == self.cells", "finished=watermark == NEVER",
        REPORTING_TESTS,
    ),
    fault(
        "the query has finished when one cell has", PROGRESS,
        "watermark = min((figures.watermark for figures in cells), default=BEGINNING)",
        "watermark = max((figures.watermark for figures in cells), default=BEGINNING)",
        REPORTING_TESTS,
    ),
    fault(
        "zeros are reported over an earlier status", REPORTING,
        "if not self._progress.has_begun:", "if False:",
        REPORTING_TESTS,
    ),
    fault(
        "the last figures are taken for the end of the run", "cli/run.py",
        "if status is not None and status.has_ended:", "if status is not None and status.metrics.finished:",
        CLI_TESTS,
    ),
    fault(
        "all streams are idle when all are silent", PROGRESS,
        "if len(silent) == len(self._last_seen):", "if False:",
        REPORTING_TESTS,
    ),
    fault(
        "a stream that is idle is declared idle again", PROGRESS,
        "if s not in idle and self._asked.get(s) != self._last_rows[s]}",
        "if self._asked.get(s) != self._last_rows[s]}",
        REPORTING_TESTS,
    ),
    fault(
        "a silent stream is declared idle with every report", PROGRESS,
        "if s not in idle and self._asked.get(s) != self._last_rows[s]}", "if s not in idle}",
        REPORTING_TESTS,
    ),
    fault(
        "late rows count as often as they were sent", COUNTERS,
        "sum(counters.late for counters in cells) // copies", "sum(counters.late for counters in cells)",
        f"{DURABLE_TESTS}::test_late_rows_of_a_stream_that_is_read_twice_are_counted_once",
    ),
    fault(
        "files of the sink have other names on disk than in its log", SINK_LOG,
        'unquote(urlsplit(json.loads(line)["path"]).path)', 'urlsplit(json.loads(line)["path"]).path',
        "tests/spark/test_sink_log.py",
    ),
)  # fmt: skip

PACKS = (
    fault(
        "the columns of DataFrames are not checked", "spark/spark_types.py",
        "check_frame(stream, frames[name])", "pass",
        "tests/spark/test_time.py::test_frames_that_do_not_fit_are_refused",
    ),
    fault(
        "types of pushed columns are not checked", "runtime/ingest.py",
        "if given != declared and not pat.is_null(given):", "if False:",
        INGEST_TESTS,
    ),
    fault(
        "of rows of several streams that are mixed only each stream's first are packed", PACKING,
        "    for stream in np.unique(found):\n        yield int(stream), rows.filter(pa.array(streams == stream))",
        "    for stream, place in zip(*np.unique(found, return_index=True), strict=True):\n"
        "        end = [*starts[1:], len(streams)][place]\n"
        "        yield int(stream), rows.slice(starts[place], end - starts[place])",
        PACKING_TESTS,
    ),
    fault(
        "rows that no window wants are packed", PACK,
        "if KEEP in batch.schema.names:", "if False:",
        PACK_TESTS,
    ),
    fault(
        "rows of which it is not known whether a window wants them are packed", PACK,
        "fill_null(False)", "fill_null(True)",
        PACK_TESTS,
    ),
    fault(
        "rows that no window wants are not counted", PACK,
        "rows=rows_in,", "rows=rows.num_rows,",
        PACK_TESTS,
    ),
    fault(
        "two columns of one type share a name", PACKING,
        "seen[type] += 1", "pass",
        PACKING_TESTS,
    ),
    fault(
        "packs are taken in the order of the shuffle", OPERATOR,
        'packs.sort(key=lambda pack: (pack[0], pack[1] if isinstance(pack[1], bytes) else b""))', "pass",
        f"{DURABLE_TESTS}::test_packs_are_taken_in_the_order_of_their_places",
    ),
    fault(
        "commands are taken in the order of the shuffle", OPERATOR,
        "commands.sort(key=lambda command: command.number)", "pass",
        f"{DURABLE_TESTS}::test_commands_of_one_batch_are_carried_out_in_their_order",
    ),
    fault(
        "the directory of cell hosts may be open to others", HOST,
        "or found.st_mode & 0o077:", "or False:",
        HOST_TESTS,
    ),
    fault(
        "a link leads to the directory of cell hosts", HOST,
        "found = path.lstat()", "found = path.stat()",
        HOST_TESTS,
    ),
    fault(
        "a host's errors lose their class", HOST,
        "answer = Failed(error.message, type(error).__name__, error.detail, error.hint)",
        "answer = Failed(error.message)",
        f"{DURABLE_TESTS}::test_a_host_refuses_with_the_error_that_a_worker_would",
    ),
    fault(
        "a message that ends early is taken for whole", "runtime/framing.py",
        "if len(data) != count:", "if not data and count:",
        HOST_TESTS,
    ),
    fault(
        "what a host removes stays in the state store", HOST,
        "                backend.remove(key)\n", "                pass\n",
        f"{DURABLE_TESTS}::test_what_a_host_changes_is_changed_in_the_state_store",
    ),
)  # fmt: skip

RECOVERY = (
    fault(
        "a micro-batch is repeated on a state that has it already", CACHE,
        "if durable is None or durable.version != version:", "if durable is None:",
        f"{DURABLE_TESTS}::test_a_micro_batch_that_is_repeated_counts_once",
    ),
    fault(
        "the checkpoint of another query is accepted", FINGERPRINT,
        "        if not different:\n", "        if True:\n",
        f"{DURABLE_TESTS}::test_the_state_of_another_query_is_refused",
    ),
    fault(
        "a checkpoint with other columns is accepted", DURABLE,
        "stored.check_columns(durable.cell.windows.columns())", "pass",
        f"{DURABLE_TESTS}::test_other_columns_than_the_checkpoint_has_are_refused",
    ),
    fault(
        "what another version wrote is read", MESSAGES,
        "if found == format:", "if True:",
        CONTROL_TESTS, f"{DURABLE_TESTS}::test_the_state_of_another_version_is_refused",
    ),
    fault(
        "the checksum of progress and manifest is not verified", STORED,
        "if not message.is_intact:", "if False:",
        DAMAGE_TESTS,
    ),
    fault(
        "the checksum of a segment is not verified", SEGMENTS,
        "if data[:_CHECKSUM_BYTES] != _checksum(content):", "if False:",
        DAMAGE_TESTS,
    ),
    fault(
        "a segment in another's place is accepted", SEGMENTS,
        "if header.number != number:", "if False:",
        DAMAGE_TESTS,
    ),
    fault(
        "a cell without its state begins anew", STORED,
        "if not version and query == self.query and cell in self.cells:", "if False:",
        DAMAGE_TESTS,
    ),
    fault(
        "a cell whose first micro-batch was not committed cannot begin again", STORED,
        "if one.batches > 1", "if one.batches > 0",
        DAMAGE_TESTS,
    ),
    fault(
        "a missing segment is passed over", SEGMENTS,
        'raise damaged_checkpoint(f"Segment {number} of the rows in their windows is missing.")', "continue",
        DAMAGE_TESTS,
    ),
    fault(
        "a segment that was dropped is no concern", SEGMENTS,
        "        if left:\n", "        if False:\n",
        DAMAGE_TESTS,
    ),
    fault(
        "the segment of another micro-batch is read", SEGMENTS,
        "kept = self._read_segment(number, segments[key])",
        "kept = self._read_segment(number, segments[min(segments)])",
        DAMAGE_TESTS,
    ),
    fault(
        "the last segment is overwritten after a restart", SEGMENTS,
        "self.next_number, self.looked_at = next_number, looked_at",
        "self.next_number, self.looked_at = max(0, next_number - 1), looked_at",
        MADE_AGAIN,
    ),
    fault(
        "rows in segments are written again after a restart", SEGMENTS,
        "self.next_number, self.looked_at = next_number, looked_at\n"
        "        self._written_ends = self._windows.ends()",
        "self.next_number, self.looked_at = next_number, looked_at",
        MADE_AGAIN,
    ),
    fault(
        "a segment goes when the rows of one window have left", SEGMENTS,
        "if all(e <= released[i] for i, e in s.latest_end.items())",
        "if any(e <= released[i] for i, e in s.latest_end.items())",
        f"{DURABLE_TESTS}::test_a_segment_stays_while_rows_of_one_of_its_windows_do",
    ),
    fault(
        "the watermark is restored a tick too early", WATERMARK,
        "self.watermark = progress.watermark", "self.watermark = progress.watermark - 1",
        WATERMARK_TESTS,
    ),
    fault(
        "the watermark is restored a tick too late", WATERMARK,
        "self.watermark = progress.watermark", "self.watermark = progress.watermark + 1",
        WATERMARK_TESTS,
    ),
    fault(
        "idle streams are awaited after a restart", WATERMARK,
        "self.idle = set(progress.idle)", "self.idle = set()",
        WATERMARK_TESTS,
    ),
    fault(
        "idle streams are awaited", WATERMARK,
        "for stream in self.latest if stream not in self.idle)", "for stream in self.latest)",
        WATERMARK_TESTS,
    ),
    fault(
        "a cell's watermark is restored a tick too late", DURABLE,
        "self.cell.restore(stored.manifest.cell, progress.watermark, completion)",
        "self.cell.restore(stored.manifest.cell, progress.watermark + 1, completion)",
        MADE_AGAIN,
    ),
    fault(
        "the counters of streams begin anew after a restart", DURABLE,
        "self.streams = progress.streams", "pass",
        MADE_AGAIN,
    ),
    fault(
        "the count of results begins anew after a restart", DURABLE,
        "self.cell.results = progress.results", "pass",
        f"{DURABLE_TESTS}::test_counts_continue_after_a_restart",
    ),
    fault(
        "what operators did is forgotten by a restart", DURABLE,
        "self.cell.counters.restore(progress.operators)", "pass",
        f"{DURABLE_TESTS}::test_what_operators_did_is_counted_across_restarts",
    ),
    fault(
        "the number of migrations begins anew after a restart", CELL,
        "        self._migrations = migrations\n", "",
        f"{DURABLE_TESTS}::test_a_command_that_comes_again_is_carried_out_once",
    ),
    fault(
        "changes of the plan are forgotten by a restart", DURABLE,
        "self._manifest_changed |= has_changed", "pass",
        f"{DURABLE_TESTS}::test_a_restart_goes_on_with_the_plan_in_force_not_with_the_one_it_names",
    ),
    fault(
        "that a migration has ended is forgotten by a restart", DURABLE,
        "            self._manifest_changed = self.cell.has_running_migrations\n        self._put(",
        "            self._manifest_changed = False\n        self._put(",
        ENDED,
    ),
    fault(
        "that a restored migration has ended is forgotten by a restart", DURABLE,
        "self._commands.restore(stored.manifest.commands)\n"
        "        self._manifest_changed = self.cell.has_running_migrations",
        "self._commands.restore(stored.manifest.commands)\n        self._manifest_changed = False",
        ENDED,
    ),
    fault(
        "a switch of just-in-time processing is not stored", HANDLER,
        "has_changed |= self._carry_out(command)",
        "has_changed |= self._carry_out(command) and isinstance(command.action, Migrate)",
        f"{DURABLE_TESTS}::test_a_switch_of_just_in_time_processing_survives_a_restart",
    ),
    fault(
        "how plans are run after a restart is what the query began with", CELL,
        "        self._just_in_time = just_in_time\n        record =", "        record =",
        f"{DURABLE_TESTS}::test_a_switch_of_just_in_time_processing_survives_a_restart",
    ),
)  # fmt: skip

JIT_TESTS = "tests/execution/test_just_in_time.py"
JUST_IN_TIME = (
    fault(
        "output of just-in-time processing comes only from input", "engine/operators/suspend.py",
        '"""Tuples may come out though none came in."""\n        return True',
        '"""Tuples may come out though none came in."""\n        return False',
        f"{JIT_TESTS}::test_what_an_open_segment_resumes_is_not_lost",
    ),
    fault(
        "rows below a consumer input do not wait", "execution/compiler.py",
        "compiled(plan.inputs[1 - waiting], consumers_below=consumers)",
        "compiled(plan.inputs[1 - waiting], consumers_below=())",
        f"{JIT_TESTS}::test_rows_below_a_consumer_input_wait_for_the_joins_above_it",
    ),
    fault(
        "feedback passes every projection", "execution/just_in_time.py",
        "return all(item.expression == item.field.column for item in plan.items)", "return True",
        f"{JIT_TESTS}::test_feedback_ends_at_a_projection_that_gives_columns_other_names",
    ),
    fault(
        "what a rebuild passed on is in transit for ever", "migration/state_matching.py",
        "            operator.expire(BEGINNING)\n", "",
        f"{JIT_TESTS}::test_keys_of_rows_that_a_rebuilt_join_holds_are_known_once",
    ),
    fault(
        "states that lack suspended tuples are completed on demand", "engine/operators/join_side.py",
        "if self.is_partial or not self.may_be_incomplete:",
        "if not self.may_be_incomplete:",
        f"{JIT_TESTS}::test_no_state_of_a_just_in_time_plan_is_completed_on_demand",
    ),
)  # fmt: skip

ALL = (*COMMANDS, *REPORTS, *PACKS, *RECOVERY, *JUST_IN_TIME)


def is_found_by(tests: tuple[str, ...], tree: Path) -> bool:
    """Whether the tests find something wrong with the sources in the tree."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode not in (0, TESTS_FAILED):
        raise RuntimeError(f"pytest could not run {' '.join(tests)}:\n{done.stdout}{done.stderr}")
    return done.returncode == TESTS_FAILED


def main(words: list[str], breakages: tuple[RuntimeBreakage, ...] = ALL) -> int:
    chosen = [
        b for b in breakages if not words or any(word in f"{b.file} {b.name} {' '.join(b.tests)}" for word in words)
    ]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "midstream-demo"))
        for breakage in chosen:
            path = tree / "src" / "midstream" / breakage.file
            right = path.read_text()
            path.write_text(sources(breakage, tree))
            began = time.monotonic()
            is_caught = is_found_by(breakage.tests, tree)
            path.write_text(right)
            survivors += not is_caught
            verdict, seconds = "caught" if is_caught else "SURVIVED", time.monotonic() - began
            print(f"{verdict:>8} {seconds:6.1f} s  {breakage.file}: {breakage.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
