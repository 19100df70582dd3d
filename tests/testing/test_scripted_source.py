"""Scripts play into anything that takes pushes, and crash where they say."""

from collections.abc import Mapping
from types import SimpleNamespace

import pyarrow as pa

from midstream.testing import ABORT, Push, heartbeat, play, script, whole_input

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.dictionary(pa.int32(), pa.string()))])
S = SimpleNamespace(name="s", schema=SCHEMA, event_time="ts")


class Recorder:
    """A run that returns the event times it is given, and notes every call."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def push(self, batches: Mapping[str, pa.Table], /, watermark: int | None = None) -> pa.Table:
        times = [time for table in batches.values() for time in table.column("ts").to_pylist()]
        self.calls.append((times, watermark))
        return pa.table({"ts": pa.array(times, pa.int64())})

    def finish(self) -> pa.Table:
        self.calls.append("finish")
        return pa.table({"ts": pa.array([99], pa.int64())})


STEPS = script([S], [{"s": [(1, "a"), (2, None)]}, heartbeat(5), ABORT, ({"s": [(7, "c")]}, 6)])


def test_rows_take_the_types_of_their_stream() -> None:
    first = STEPS[0]
    assert isinstance(first, Push)
    assert first.rows["s"].schema == SCHEMA
    assert script([S], [{"s": []}])[0].rows["s"].num_rows == 0  # type: ignore[union-attr]


def test_play_pushes_every_step_and_finishes() -> None:
    run = Recorder()
    result = play(run, [step for step in STEPS if step is not ABORT])
    assert run.calls == [([1, 2], None), ([], 5), ([7], 6), "finish"]
    assert result.column("ts").to_pylist() == [1, 2, 7, 99]


def test_play_can_leave_the_run_unfinished() -> None:
    run = Recorder()
    assert play(run, STEPS[:1], finish=False).num_rows == 2
    assert run.calls == [([1, 2], None)]


def test_abort_ends_the_play_without_a_finish() -> None:
    run = Recorder()
    assert play(run, STEPS).column("ts").to_pylist() == [1, 2]
    assert run.calls == [([1, 2], None), ([], 5)]


def test_abort_goes_on_with_the_restarted_run() -> None:
    first, second = Recorder(), Recorder()
    assert play(first, STEPS, restart=lambda: second).column("ts").to_pylist() == [1, 2, 7, 99]
    assert first.calls == [([1, 2], None), ([], 5)] and second.calls == [([7], 6), "finish"]


def test_whole_input_is_what_the_oracle_takes() -> None:
    table = whole_input([S], STEPS)["s"]
    assert table.column("ts").to_pylist() == [1, 2, 7]
    assert whole_input([S], [])["s"].schema == SCHEMA
