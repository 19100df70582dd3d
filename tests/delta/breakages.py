"""Faults in Delta tables, files and Kafka that random cases do not come to, as those in ``tests.runtime.breakages``.

python -m tests.delta.breakages
"""

from __future__ import annotations

import sys

from tests.runtime.breakages import fault, main

COMMITS, ORPHANS, STATISTICS = "delta/commits.py", "delta/orphans.py", "delta/file_statistics.py"
RESULTS, ADDED, ENTRIES = "delta/result_files.py", "delta/added_files.py", "delta/log_entries.py"
FILES, LOG, READING = "runtime/data_files.py", "runtime/file_log.py", "runtime/file_reading.py"
SOURCE, STREAM = "spark/file_source.py", "spark/file_stream.py"
REPEATS, KAFKA_SINK = "kafka/repeats.py", "spark/kafka_sink.py"

COMMITS_TESTS, ORPHANS_TESTS = "tests/delta/test_commits.py", "tests/delta/test_orphans.py"
RESULTS_TESTS, READING_TESTS = "tests/delta/test_result_files.py", "tests/delta/test_reading.py"
ADDED_TESTS, LOG_TESTS = "tests/delta/test_added_files.py", "tests/runtime/test_file_log.py"
STREAM_TESTS, REPEATS_TESTS, TOPICS_TESTS = (
    "tests/spark/test_file_stream.py",
    "tests/kafka/test_repeats.py",
    "tests/kafka/test_topics.py",
)

TRANSACTIONS = (
    fault(
        "a micro-batch that the table has is added again", COMMITS,
        "        return last == self._batch\n", "        return False\n",
        f"{COMMITS_TESTS}::test_a_driver_that_dies_after_the_commit_repeats_nothing",
    ),
    fault(
        "a transaction does not say which micro-batch it is", COMMITS,
        "[Transaction(transaction_id(self._application), self._batch), ", "[",
        COMMITS_TESTS,
    ),
    fault(
        "a transaction has no epoch", COMMITS,
        ", Transaction(WRITER, self._epoch)]", "]",
        f"{COMMITS_TESTS}::test_of_two_drivers_that_begin_at_once_the_second_to_commit_stops",
    ),
    fault(
        "a commit that was written though a failure was reported is made again", COMMITS,
        "self._table.version() > unsure_since and self._is_there(mark)", "False",
        f"{COMMITS_TESTS}::test_a_commit_that_was_written_though_a_failure_was_reported_counts",
    ),
    fault(
        "storage that fails is not asked again", COMMITS,
        "except (DeltaError, OSError) as problem:",
        "except ZeroDivisionError as problem:",
        f"{COMMITS_TESTS}::test_storage_that_fails_once_is_asked_again",
    ),
    fault(
        "the first micro-batch makes no transaction without results", COMMITS,
        "        return self._last_batch() is None\n", "        return False\n",
        f"{COMMITS_TESTS}::test_the_first_micro_batch_is_a_transaction_even_without_results",
    ),
    fault(
        "a table without the results so far is written to", COMMITS,
        "if last is None and self._batch > 0:", "if False:",
        f"{COMMITS_TESTS}::test_a_table_made_again_while_the_query_was_stopped_is_refused",
    ),
    fault(
        "another table in the same place is written to", COMMITS,
        "if mark != self._mark_of_latest and not is_cleaned_up:", "if mark is None and not is_cleaned_up:",
        f"{COMMITS_TESTS}::test_a_table_that_was_removed_is_not_written_to",
    ),
    fault(
        "a log that was cleaned up is taken for another table's", COMMITS,
        "is_cleaned_up = mark is None and has_version(directory, self._latest)", "is_cleaned_up = False",
        f"{COMMITS_TESTS}::test_a_log_that_is_cleaned_up_meanwhile_is_the_same",
    ),
    fault(
        "files of a live writer are orphans", ORPHANS,
        "return file.epoch < epoch or is_over", "return file.epoch <= epoch or is_over",
        ORPHANS_TESTS,
    ),
    fault(
        "files of the next micro-batch are orphans", ORPHANS,
        "file.batch <= committed", "file.batch <= committed + 1",
        ORPHANS_TESTS,
    ),
    fault(
        "files of earlier versions are orphans", ORPHANS,
        "return set(unnamed) - set(removed)", "return set(unnamed)",
        f"{ORPHANS_TESTS}::test_files_that_were_removed_from_the_table_belong_to_earlier_versions",
    ),
)  # fmt: skip

WRITTEN = (
    fault(
        "bounds are rounded", STATISTICS,
        "content = msgspec.json.decode(statistics, type=_Statistics)\n    content.nullCount",
        'content = msgspec.json.decode(statistics)\n    content["nullCount"]',
        f"{READING_TESTS}::test_columns_that_only_the_table_has_are_null",
    ),
    fault(
        "bounds of decimals have an exponent", STATISTICS,
        'msgspec.Raw(f"{low:f}".encode())', 'msgspec.Raw(f"{low}".encode())',
        f"{READING_TESTS}::test_bounds_of_decimals_have_no_exponent",
    ),
    fault(
        "columns beside a struct have bounds", STATISTICS,
        " and not any(pat.is_struct(field.type) for field in schema)", "",
        f"{READING_TESTS}::test_structs_are_null_where_they_are",
    ),
    fault(
        "a nested column counts as one", STATISTICS,
        "return sum(_leaves(data_type.field(place).type) for place in range(data_type.num_fields))", "return 1",
        READING_TESTS,
    ),
    fault(
        "a NaN has bounds", STATISTICS,
        "if field.name in without_bounds or not all", "if not all",
        RESULTS_TESTS, READING_TESTS,
    ),
    fault(
        "a long text is cut above", STATISTICS,
        "return low[:MOST_LETTERS], _upper(high)", "return low[:MOST_LETTERS], high[:MOST_LETTERS]",
        RESULTS_TESTS,
    ),
    fault(
        "binary columns have bounds", STATISTICS,
        "if not filled or pat.is_binary(field.type):", "if not filled:",
        RESULTS_TESTS, READING_TESTS,
    ),
    fault(
        "an attempt that fails leaves its files", RESULTS,
        "    except BaseException:\n        writer.abandon()", "    except BaseException:\n        pass",
        f"{RESULTS_TESTS}::test_an_attempt_that_fails_removes_its_files",
    ),
    fault(
        "the last row group is not waited for", RESULTS,
        "        self.write_group()\n        self._background.wait()\n        self._writer.close()",
        "        self._writer.close()",
        RESULTS_TESTS,
    ),
)  # fmt: skip

READ = (
    fault(
        "rows that were rewritten are read again", ADDED,
        'if add["dataChange"] else []', "if True else []",
        f"{ADDED_TESTS}::test_rows_that_are_rewritten_are_not_read_again",
    ),
    fault(
        "names are taken as they are in the log", ADDED,
        "os.path.join(path, unquote(name))", "os.path.join(path, name)",
        f"{ADDED_TESTS}::test_names_may_have_any_letter",
    ),
    fault(
        "rows that were deleted are no matter", ADDED,
        'if "remove" in action and action["remove"]["dataChange"]:', "if False:",
        f"{ADDED_TESTS}::test_rows_that_are_taken_back_end_the_query",
    ),
    fault(
        "the log is cut at any line separator", ADDED,
        "entry.read_bytes().splitlines()", "entry.read_bytes().decode().splitlines()",
        f"{ADDED_TESTS}::test_text_may_have_any_letter",
    ),
    fault(
        "another table in the same place is read on", LOG,
        "is_thorough = mark is None or mark != self._marks.get(stream)", "is_thorough = mark is None",
        f"{ADDED_TESTS}::test_what_happens_to_a_table_is_noticed_while_the_query_runs",
    ),
    fault(
        "a table is opened at each look", LOG,
        "        self._marks[stream] = entry_mark(path, found.version)\n", "",
        f"{ADDED_TESTS}::test_a_table_is_opened_once_as_long_as_its_log_goes_on",
    ),
    fault(
        "checkpoints of a log are no versions", ENTRIES,
        r"\.(?:json$|checkpoint\.)", r"\.(?:json$)",
        f"{COMMITS_TESTS}::test_a_log_that_is_cleaned_up_meanwhile_is_the_same",
    ),
    fault(
        "files from before a table are mixed with it", LOG,
        "if stream not in self._tables and self.count(stream):", "if False:",
        f"{ADDED_TESTS}::test_files_that_were_read_before_there_was_a_log_are_not_mixed_with_the_table",
    ),
    fault(
        "files are read by name alone", LOG,
        "for _, file in sorted(dated(new)):", "for _, file in sorted(dated(new), key=lambda one: one[1]):",
        f"{LOG_TESTS}::test_files_are_numbered_by_modification_time_and_then_by_name",
    ),
    fault(
        "a file is read as often as it is found", LOG,
        "return (stream, file) not in self._known", "return True",
        LOG_TESTS,
    ),
    fault(
        "hidden files are data", FILES,
        'return name.startswith(("_", "."))', "return False",
        LOG_TESTS,
    ),
    fault(
        "what another process has added to the log is overwritten", LOG,
        'if b"\\n" in file.read():', "if False:",
        f"{LOG_TESTS}::test_a_log_that_another_process_has_added_to_is_not_changed",
    ),
    fault(
        "columns are found in their own case only", READING,
        "{name: name if name in there else folded.get(name.lower()) for name in wanted}",
        "{name: name if name in there else None for name in wanted}",
        f"{STREAM_TESTS}::test_columns_are_found_in_any_case_and_missing_ones_are_null",
    ),
    fault(
        "a micro-batch takes all files", SOURCE,
        "min(known[source.stream], read + min(most, MOST_PARTS))", "known[source.stream]",
        f"{STREAM_TESTS}::test_a_micro_batch_has_as_many_files_as_are_asked_for",
    ),
    fault(
        "a declared column that the table lacks is NULL", STREAM,
        "        if has_versions(self.path):\n            self._check_columns_of_table()\n", "",
        f"{STREAM_TESTS}::test_columns_that_a_table_does_not_have_are_refused",
    ),
)  # fmt: skip

MESSAGES = (
    fault(
        "a result of an earlier micro-batch is new", REPEATS,
        "        if batch < latest.batch:\n            return False\n", "",
        REPEATS_TESTS,
    ),
    fault(
        "numbers of the last micro-batch are kept", REPEATS,
        "latest.batch, latest.numbers = batch, set()", "latest.batch = batch",
        REPEATS_TESTS,
    ),
    fault(
        "each of two drivers sends its own messages", KAFKA_SINK,
        '{place}/{read_text(spark, chosen)}"', '{place}/{attempt}"',
        f"{TOPICS_TESTS}::test_of_two_drivers_on_one_checkpoint_both_send_what_one_has_stored",
    ),
    fault(
        "producers may choose partitions as they like", KAFKA_SINK,
        "if name.lower() in _UNSAFE:", "if False:",
        f"{TOPICS_TESTS}::test_what_cannot_be_sent_or_read_is_refused_before_anything_runs",
    ),
)  # fmt: skip

ALL = (*TRANSACTIONS, *WRITTEN, *READ, *MESSAGES)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ALL))
