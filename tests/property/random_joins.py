"""Random joins of three to six streams, with rows that keep states small and hits frequent."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import Plan
from midstream.testing.choices import Choices

__all__ = ["random_joins", "random_mixed_plan", "random_order", "random_reduced_joins", "random_rows"]

WINDOWS = ["RANGE 12", "RANGE 20", "RANGE 12", "RANGE 20", "RANGE 5", "RANGE 8 SLIDE 3", "RANGE 6 SLIDE 6", "NOW"]
TYPES = [pa.int64(), pa.string(), pa.float64()]


def random_joins(choices: Choices) -> ContinuousQuery:
    """A clique, star or chain, or something between, of equalities and a few other comparisons."""
    names = "abcdef"[: choices.number(3, 6)]
    pairs = [(left, right) for place, left in enumerate(names) for right in names[place + 1 :]]
    shape = choices.pick(["chain", "star", "clique", "mixed"])
    if shape == "chain":
        pairs = list(pairwise(names))
    elif shape == "star":
        pairs = [(names[0], other) for other in names[1:]]
    elif shape == "mixed":
        pairs = [pair for pair in pairs if not choices.chance(3)] or pairs
    columns: dict[str, dict[str, pa.DataType]] = {name: {} for name in names}
    data_type, has_one_key, conditions = choices.pick(TYPES), choices.chance(3), []
    for left, right in pairs:
        column = "k" if has_one_key else f"{left}{right}"
        columns[left][column] = columns[right][column] = data_type
        comparison = choices.pick(["<", "<=", "<>"]) if choices.chance(8) else "="
        conditions.append(f"{left}.{column} {comparison} {right}.{column}")
    selected = ", ".join(f"{name}.ts AS {name}" for name in names)
    windows = ", ".join(f"{name} [{choices.pick(WINDOWS)}] {name}" for name in names)
    streams = [
        Stream(name, pa.schema({"ts": pa.int64(), **columns[name]}), "ts", lateness=choices.pick([0, 3]))
        for name in names
    ]
    return ContinuousQuery(f"SELECT {selected} FROM {windows} WHERE {' AND '.join(conditions)}", streams)


def random_reduced_joins(choices: Choices) -> ContinuousQuery:
    """A chain or star of two to four streams below DISTINCT or GROUP BY: plans with them above joins and below."""
    names = "abcd"[: choices.number(2, 4)]
    pairs = list(pairwise(names)) if choices.chance(2) else [(names[0], other) for other in names[1:]]
    columns: dict[str, list[str]] = {name: ["x"] for name in names}
    for left, right in pairs:
        for name in (left, right):
            columns[name].append(f"{left}{right}")
    conditions = [f"{left}.{left}{right} = {right}.{left}{right}" for left, right in pairs]
    known = [f"{name}.{column}" for name in names for column in columns[name]]
    chosen = list(dict.fromkeys(choices.pick(known) for _ in range(choices.number(1, 3))))
    kept = [f"{column} AS c{place}" for place, column in enumerate(chosen)]
    if choices.chance(2):
        select, grouping = f"DISTINCT {', '.join(kept)}", ""
    else:
        calls = [
            "COUNT(*)",
            f"SUM({choices.pick(known)})",
            f"MAX({choices.pick(known)})",
            f"COUNT({choices.pick(known)})",
        ]
        first, second = choices.pick(calls), choices.pick(calls)
        select = ", ".join([*kept, f"{first} AS n", f"{second} AS m"])
        grouping = f" GROUP BY {', '.join(chosen)}"
    windows = ", ".join(f"{name} [{choices.pick(WINDOWS)}] {name}" for name in names)
    streams = [
        Stream(
            name,
            pa.schema({"ts": pa.int64(), **{column: pa.int64() for column in columns[name]}}),
            "ts",
            lateness=choices.pick([0, 3]),
        )
        for name in names
    ]
    return ContinuousQuery(f"SELECT {select} FROM {windows} WHERE {' AND '.join(conditions)}{grouping}", streams)


def random_order(choices: Choices, names: list[str]) -> str:
    """A join order of any shape."""
    if len(names) == 1:
        return names[0]
    place = choices.number(1, len(names) - 1)
    sides = (random_order(choices, names[:place]), random_order(choices, names[place:]))
    left, right = sides if choices.chance(2) else sides[::-1]
    return f"({left} {right})"


def random_mixed_plan(choices: Choices, query: ContinuousQuery) -> Plan:
    """A plan of joins of two inputs, and often braces above, below and between them, of any routing."""
    names = sorted((stream.name for stream in query.streams), key=lambda _: choices.number(0, 9))
    order = _random_mixed_order(choices, names) if choices.chance(2) else random_order(choices, names)
    if order.startswith("("):
        order = order[1:-1]
    return query.plan(order, routing="eddy" if "{" in order and choices.chance(2) else None)


def _random_mixed_order(choices: Choices, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    count = min(len(names), choices.pick([len(names), 3, 2, 4]))
    cuts = sorted(choices.number(1, len(names) - 1) for _ in range(count - 1))
    pieces = [names[start:end] for start, end in pairwise([0, *cuts, len(names)]) if start < end]
    parts = " ".join(_random_mixed_order(choices, piece) for piece in pieces)
    return f"({parts})" if len(pieces) == 2 and choices.chance(2) else f"{{{parts}}}"


def random_rows(choices: Choices, stream: Stream, now: int, watermark: int, keys: int) -> pa.Table:
    """A few rows from about now on, none late, with few different keys and now and then NULL."""
    rows = []
    # Rows far apart stay together in a state: one keeps the other there after it has ended.
    spread = choices.pick([4, 4, 16])
    for _ in range(choices.number(0, 4)):
        values = {}
        for column in stream.schema.names[1:]:
            key = None if choices.chance(12) else choices.number(0, keys)
            is_text = stream.schema.field(column).type == pa.string()
            values[column] = str(key) if is_text and key is not None else key
        early = choices.number(0, stream.lateness)
        rows.append({"ts": max(watermark, now + choices.number(0, spread) - early), **values})
    return pa.Table.from_pylist(rows, stream.schema)
