"""A scripted source: the input of a test as a list of steps, played into a run.

Time comes only from the script, so a test is the same on every machine: each step is one push of rows, a
heartbeat, or a crash. A crash is written into the data, where the reader sees what comes before and after it.

>>> import pyarrow as pa
>>> from types import SimpleNamespace
>>> stream = SimpleNamespace(name="s", schema=pa.schema({"ts": pa.int64(), "k": pa.string()}), event_time="ts")
>>> steps = script([stream], [{"s": [(1, "a"), (2, "b")]}, heartbeat(5), ABORT, {"s": [(7, "c")]}])
>>> [step if step is ABORT else (step.row_count, step.watermark) for step in steps]
[(2, None), (0, 5), ABORT, (1, None)]
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from midstream.testing.snapshot_series import StreamLike

__all__ = [
    "ABORT",
    "Abort",
    "Playable",
    "Push",
    "Step",
    "WrittenStep",
    "heartbeat",
    "play",
    "script",
    "whole_input",
]


class Abort(enum.Enum):
    """The type of `ABORT`."""

    ABORT = "ABORT"

    def __repr__(self) -> str:
        return self.value


ABORT = Abort.ABORT
"""The step at which a run crashes: it is dropped as it is, without a finish."""


@dataclass(frozen=True, eq=False)
class Push:
    """One call of `push`: tables by stream, and the explicit watermark in ticks, if any."""

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    watermark: int | None = None

    @property
    def row_count(self) -> int:
        """The rows of all streams together."""
        return sum(table.num_rows for table in self.rows.values())


Step: TypeAlias = Push | Abort
WrittenRows: TypeAlias = Mapping[str, Sequence[Sequence[Any]]]
WrittenStep: TypeAlias = Step | WrittenRows | tuple[WrittenRows, int | None]


class Playable(Protocol):
    """Anything that takes pushes and gives results: a local run, a migration, a stand-in."""

    def push(self, batches: Mapping[str, pa.Table], /, watermark: int | None = None) -> pa.Table:
        """Take rows by stream and return the results they make certain."""

    def finish(self) -> pa.Table:
        """End the streams and return everything still held."""


def heartbeat(watermark: int) -> Push:
    """A step without rows that moves the watermark."""
    return Push({}, watermark)


def script(streams: Sequence[StreamLike], steps: Sequence[WrittenStep]) -> tuple[Step, ...]:
    """Steps from rows written as tuples in the order of the stream's columns.

    A step is `{"stream": [row, ...]}`, `({"stream": [row, ...]}, watermark)`, a heartbeat or `ABORT`.
    """
    schemas = {stream.name: stream.schema for stream in streams}
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Push | Abort):
            made.append(step)
            continue
        written, watermark = step if isinstance(step, tuple) else (step, None)
        tables = {}
        for name, rows in written.items():
            schema = schemas[name]
            columns = list(zip(*rows, strict=True)) or [()] * len(schema)
            arrays = [_array(values, schema_field.type) for values, schema_field in zip(columns, schema, strict=True)]
            tables[name] = pa.table(arrays, schema=schema)
        made.append(Push(tables, watermark))
    return tuple(made)


def play(
    run: Playable,
    steps: Sequence[Step],
    *,
    finish: bool = True,
    restart: Callable[[], Playable] | None = None,
) -> pa.Table:
    """Play the steps into the run and return all results in one table.

    At `ABORT` the run is abandoned. `restart` gives the run that continues with the next step; without it
    the play ends there, and the results so far are returned.
    """
    results = []
    for step in steps:
        if isinstance(step, Push):
            results.append(run.push(step.rows, watermark=step.watermark))
        elif restart is None:
            finish = False
            break
        else:
            run = restart()
    if finish:
        results.append(run.finish())
    return pa.concat_tables(results) if results else pa.table({})


def whole_input(streams: Sequence[StreamLike], steps: Sequence[Step]) -> dict[str, pa.Table]:
    """All rows of the steps by stream, as the oracle takes them."""
    pushes = [step for step in steps if isinstance(step, Push)]
    return {
        stream.name: pa.concat_tables(
            [
                stream.schema.empty_table(),
                *(push.rows[stream.name] for push in pushes if stream.name in push.rows),
            ]
        )
        for stream in streams
    }


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)
