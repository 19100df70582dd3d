"""The oracle: what a continuous query must return, computed by DuckDB from the query's text and whole input.

Every optimised path of midstream is compared with this one, so it shares no code with the compiler, the
planner or the engine. It follows the definition instead: at every instant the result is the relational query
over the rows valid then. Each `stream [WINDOW]` of the text is replaced by a subquery for the rows valid at
an instant. DuckDB evaluates the resulting SQL at all critical instants at once: the instant is one more
column, which joins, groups and set operations must agree on. Critical instants are those where some row's
validity begins or ends; snapshots cannot change between them.

Intuitively: recompute from scratch, once per moment. That costs (instants x rows), so it is for test inputs
of some thousand rows; for larger ones pass a sample of instants. Late rows are the caller's business: the
tables must hold what the query is to see. Rows without an event time are never seen.

>>> import pyarrow as pa
>>> from types import SimpleNamespace
>>> stream = SimpleNamespace(name="s", schema=pa.schema({"ts": pa.int64(), "k": pa.string()}), event_time="ts")
>>> rows = pa.table({"ts": [1, 2], "k": ["a", "a"]})
>>> series = snapshots("SELECT k, COUNT(*) AS n FROM s [RANGE 3] GROUP BY k", [stream], {"s": rows})
>>> series.instants, series.at(2), series.at(5)
((1, 2, 5, 6), [('a', 2)], [('a', 1)])
>>> join_intervals("SELECT x.k FROM s [RANGE 3] x, s [NOW] y WHERE x.ts < y.ts", [stream], {"s": rows}).to_pylist()
[{'k': 'a', 'valid_from': 2, 'valid_to': 3}]
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from midstream.testing.oracle_text import OracleError, Query, Select, Source, Token, Window, read_query
from midstream.testing.snapshot_series import Rows, SnapshotSeries, StreamLike

__all__ = ["OracleError", "join_intervals", "snapshots"]

# CQL's expressions are total and know one integer and one float type; these macros teach DuckDB both. They
# shadow the built-in functions, which stay reachable as system.main.<name>. Integers go through HUGEINT,
# because TRY() refuses aggregates.
_SETTINGS = """
SET TimeZone = 'UTC';
SET threads = 1;
SET python_enable_replacements = false;
SET ieee_floating_point_ops = false;
SET error_on_division_by_zero = false;
"""
_DIALECT = """
CREATE MACRO "+"(a HUGEINT, b HUGEINT) AS TRY_CAST(add(a, b) AS BIGINT), (a, b) AS add(a, b), (a) AS a;
CREATE MACRO "-"(a HUGEINT, b HUGEINT) AS TRY_CAST(subtract(a, b) AS BIGINT), (a, b) AS subtract(a, b),
    (a HUGEINT) AS TRY_CAST(subtract(0::HUGEINT, a) AS BIGINT), (a) AS subtract(0, a);
CREATE MACRO "*"(a HUGEINT, b HUGEINT) AS TRY_CAST(multiply(a, b) AS BIGINT), (a, b) AS multiply(a, b);
CREATE MACRO "%"(a HUGEINT, b HUGEINT) AS TRY_CAST(system.main.mod(a, b) AS BIGINT),
    (a, b) AS system.main.mod(a, b);
CREATE MACRO mod(a HUGEINT, b HUGEINT) AS TRY_CAST(system.main.mod(a, b) AS BIGINT),
    (a, b) AS system.main.mod(a, b);
CREATE MACRO abs(a HUGEINT) AS TRY_CAST(system.main.abs(a) AS BIGINT), (a) AS system.main.abs(a);
CREATE MACRO floor(a HUGEINT) AS a::BIGINT, (a) AS system.main.floor(a);
CREATE MACRO ceil(a HUGEINT) AS a::BIGINT, (a) AS system.main.ceil(a);
CREATE MACRO sqrt(a) AS CASE WHEN a < 0 THEN NULL ELSE system.main.sqrt(a) END;
CREATE MACRO ln(a) AS CASE WHEN a <= 0 THEN NULL ELSE system.main.ln(a) END;
CREATE MACRO power(a, b) AS
    CASE WHEN (a = 0 AND b < 0) OR (a < 0 AND b <> system.main.floor(b)) THEN NULL ELSE system.main.power(a, b) END;
CREATE MACRO sum(a HUGEINT) AS TRY_CAST(system.main.sum(a) AS BIGINT), (a) AS system.main.sum(a);
"""


def snapshots(
    text: str,
    streams: Sequence[StreamLike],
    tables: Mapping[str, Rows],
    instants: Iterable[int] | None = None,
    *,
    one_by_one: bool = False,
) -> SnapshotSeries:
    """The bag of result rows at every critical instant, or at the given ones only.

    `one_by_one` runs the query as it is written once per instant: slower, but closer to the definition, so
    that the two ways check each other.
    """
    query = read_query(text)
    with _database() as database:
        inputs = _Inputs(database, streams, tables)
        inputs.load(query)
        chosen = tuple(sorted(inputs.critical_instants if instants is None else set(instants)))
        if one_by_one:
            parts = []
            for instant in chosen or (0,):
                sql = _snapshot_sql(query, inputs, f"CAST({instant} AS BIGINT)")
                parts.append(_fetch(database, f"SELECT CAST({instant} AS BIGINT) AS __t, q.* FROM ({sql}) AS q"))
            table = pa.concat_tables(parts)
        else:
            # LATERAL would say this in fewer words, but DuckDB 2.0 fails on aggregates inside it.
            database.register("__instants", pa.table({"__t": pa.array(chosen, pa.int64())}))
            table = _fetch(database, _snapshot_sql(query, inputs, None))
        return SnapshotSeries(chosen, table, sampled=instants is not None)


def join_intervals(text: str, streams: Sequence[StreamLike], tables: Mapping[str, Rows]) -> pa.Table:
    """The exact bag of results of a query of joins, projections, selections and UNION ALL alone.

    A join's result row is valid where all its parts are, so this is one SQL query over validity intervals.
    The last two columns are `valid_from` and `valid_to` (NULL: never ends).
    """
    query = read_query(text)
    if not all(select.only_joins for select in query.selects()) or set(query.set_operators()) - {"UNION ALL"}:
        raise OracleError("join_intervals takes only joins, selections, projections and UNION ALL")
    with _database() as database:
        inputs = _Inputs(database, streams, tables)
        inputs.load(query)
        table = _fetch(database, _interval_sql(query, inputs))
    validity = [column.cast(inputs.time_type) for column in table.columns[-2:]]
    return pa.table([*table.columns[:-2], *validity], names=[*table.column_names[:-2], "valid_from", "valid_to"])


@cache
def _shared() -> duckdb.DuckDBPyConnection:
    shared = duckdb.connect()
    shared.execute(_SETTINGS + _DIALECT)
    # DuckDB complains of what is left when Python ends.
    atexit.register(_shared.cache_clear)
    return shared


def _database() -> duckdb.DuckDBPyConnection:
    """DuckDB with CQL's expressions, and no tables. Making one takes longer than most queries, so there is one for all;
    what is temporary in a connection to it no other one sees."""
    database = _shared().cursor()
    database.execute(_SETTINGS)
    return database


class _Inputs:
    """The query's streams as DuckDB tables, one per stream and window, with each row's validity."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        streams: Sequence[StreamLike],
        tables: Mapping[str, Rows],
    ) -> None:
        self.critical_instants: set[int] = set()
        self.time_type: pa.DataType = pa.int64()
        self._database = database
        self._streams = {stream.name.lower(): stream for stream in streams}
        self._tables = tables
        self._loaded: dict[tuple[str, Window | None], str] = {}

    def load(self, query: Query) -> None:
        """Create a table for every windowed stream of the query."""
        for select in query.selects():
            for source in select.sources():
                if source.subquery is None and self._key(source) not in self._loaded:
                    self._load(source)

    def rows(self, source: Source) -> str:
        """The DuckDB table of this source's rows."""
        return self._loaded[self._key(source)]

    def columns(self, source: Source) -> list[str]:
        """This source's columns, quoted."""
        return [_quote(name) for name in self._stream(source).schema.names]

    def _key(self, source: Source) -> tuple[str, Window | None]:
        return source.stream.lower(), source.window

    def _stream(self, source: Source) -> StreamLike:
        if source.stream.lower() not in self._streams:
            raise OracleError(f"stream {source.stream!r} is not declared")
        return self._streams[source.stream.lower()]

    def _load(self, source: Source) -> None:
        stream = self._stream(source)
        event_type = stream.schema.field(stream.event_time).type
        if pa.types.is_timestamp(event_type):
            self.time_type = pa.timestamp("us", event_type.tz)
        table = _as_table(self._tables.get(stream.name, []), stream.schema)
        assert source.window is not None
        kept, starts, ends = [], [], []
        for index, event_time in enumerate(_ticks(table.column(stream.event_time))):
            validity = None if event_time is None else source.window.validity(event_time)
            if validity is not None:
                kept.append(index)
                starts.append(validity[0])
                ends.append(validity[1])
        self.critical_instants.update(starts, (end for end in ends if end is not None))
        columns = [_plain(column) for column in table.take(pa.array(kept, pa.int64())).columns]
        validities = [pa.array(starts, pa.int64()), pa.array(ends, pa.int64())]
        name = f"__rows_{len(self._loaded)}"
        arrow = pa.table([*columns, *validities], names=[*table.column_names, "__vf", "__vt"])
        self._database.register(name + "_arrow", arrow)
        self._database.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_arrow")
        self._loaded[self._key(source)] = name


def _as_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    parts = [rows] if isinstance(rows, pa.Table | pa.RecordBatch) else list(rows)
    tables = [pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part for part in parts]
    return pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)])


def _ticks(column: pa.ChunkedArray) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    ticks: list[int | None] = column.cast(pa.int64()).to_pylist()
    return ticks


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the few number types CQL computes with; the values stay the same."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_uint64(kind):
        return column.cast(pa.decimal128(20, 0))
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column


def _snapshot_sql(query: Query, inputs: _Inputs, instant: str | None) -> str:
    """The query over the rows valid at the instant; if None, at all of them, with `__t` as first column."""

    def render(select: Select) -> str:
        parts = []
        for part in select.from_parts:
            if isinstance(part, Token):
                parts.append(_expression([part]))
            elif part.subquery is not None:
                parts.append(f"({_snapshot_sql(part.subquery, inputs, instant)}) AS {_quote(part.alias)}")
            else:
                columns, rows, valid = (
                    ", ".join(inputs.columns(part)),
                    inputs.rows(part),
                    "__vf <= {0} AND ({0} < __vt OR __vt IS NULL)",
                )
                if instant is None:
                    rows, columns, valid = f"{rows}, __instants", f"__t, {columns}", valid.format("__t")
                valid = valid.format(instant)
                parts.append(f"(SELECT {columns} FROM {rows} WHERE {valid}) AS {_quote(part.alias)}")
        items, groups, conditions = _expression(select.items), [], []
        if "WHERE" in select.clauses:
            conditions.append(f"({_expression(select.clauses['WHERE'])})")
        if select.aggregates_without_groups or "GROUP BY" in select.clauses:
            # SQL's single group of an empty input is CQL's only deviation; with a key there is none.
            groups.append(instant or f"{_quote(select.sources()[0].alias)}.__t")
        if "GROUP BY" in select.clauses:
            groups.append(_expression(select.clauses["GROUP BY"]))
        if instant is None:
            first, *others = (f"{_quote(source.alias)}.__t" for source in select.sources())
            items = f"{first} AS __t, " + _expression(select.items, star="* EXCLUDE (__t)")
            conditions += [f"{other} = {first}" for other in others]
        sql = f"SELECT {'DISTINCT ' * select.distinct}{items} FROM {' '.join(parts)}"
        sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sql += f" GROUP BY {', '.join(groups)}" if groups else ""
        return sql + (f" HAVING {_expression(select.clauses['HAVING'])}" if "HAVING" in select.clauses else "")

    return _combine(query, lambda part: _snapshot_sql(part, inputs, instant), render)


def _interval_sql(query: Query, inputs: _Inputs) -> str:
    """The query over validity intervals; the last two columns of each block are its rows' validity."""

    def render(select: Select) -> str:
        parts = []
        for part in select.from_parts:
            if isinstance(part, Token):
                parts.append(_expression([part]))
            elif part.subquery is not None:
                parts.append(f"({_interval_sql(part.subquery, inputs)}) AS {_quote(part.alias)}")
            else:
                parts.append(f"{inputs.rows(part)} AS {_quote(part.alias)}")
        aliases = [_quote(source.alias) for source in select.sources()]
        # GREATEST and LEAST ignore NULLs, so a row that never ends does not bound the others.
        start = f"GREATEST({', '.join(f'{alias}.__vf' for alias in aliases)})"
        end = f"LEAST({', '.join(f'{alias}.__vt' for alias in aliases)})"
        where = f"({end} IS NULL OR {start} < {end})"
        if "WHERE" in select.clauses:
            where = f"({_expression(select.clauses['WHERE'])}) AND {where}"
        items = _expression(select.items, star="* EXCLUDE (__vf, __vt)")
        return f"SELECT {items}, {start} AS __vf, {end} AS __vt FROM {' '.join(parts)} WHERE {where}"

    return _combine(query, lambda part: _interval_sql(part, inputs), render)


def _combine(query: Query, render_query: Any, render_select: Any) -> str:
    parts = []
    for part in query.parts:
        if isinstance(part, Query):
            parts.append(f"({render_query(part)})")
        else:
            parts.append(part if isinstance(part, str) else render_select(part))
    return " ".join(parts)


def _expression(tokens: Sequence[Token], star: str = "*") -> str:
    """The tokens as DuckDB text: 1.5 is a DOUBLE, a CAST that fails is NULL, * may leave columns out."""
    words = []
    for index, token in enumerate(tokens):
        text, previous = token.text, tokens[index - 1] if index else Token("symbol", ",")
        follower = tokens[index + 2] if index + 2 < len(tokens) else Token("end", "")
        if token.kind == "number" and "." in text and "e" not in text.lower():
            text += "e0"
        elif token.is_word("CAST"):
            text = "TRY_CAST"
        elif token.is_word("SUM") and follower.is_word("DISTINCT"):
            text = "system.main.sum"
        elif token.is_symbol("*") and (previous.is_symbol(",") or previous.is_symbol(".")):
            text = star
        words.append(text)
    return " ".join(words)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fetch(database: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    try:
        return database.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        reason = str(error).partition("Stack Trace")[0].strip()
        raise OracleError(f"DuckDB refuses the query: {reason}\n  SQL: {sql}") from error
