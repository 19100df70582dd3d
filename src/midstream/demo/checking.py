"""Check the demo's results: DuckDB joins the whole input in one batch, and the two results are compared as bags.

No code of midstream is involved: the SQL below states the query, and DuckDB reads the same files. The comparison also
runs in DuckDB, which spills to disk what does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import duckdb

from midstream.demo.scenario import ALIASES, WINDOW_MINUTES

__all__ = ["Verdict", "compare_with_duckdb"]

_WINDOW = WINDOW_MINUTES * 60_000_000
"""The window in ticks, which are microseconds."""


@dataclass(frozen=True)
class Verdict:
    """How the results compare with DuckDB's."""

    results: int
    missing: int
    """Rows that DuckDB has and the results lack, or have fewer times."""
    repeated: int
    """Rows that the results have more times than DuckDB."""
    unexpected: int
    """Rows that DuckDB does not have at all."""

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.repeated or self.unexpected)

    def __str__(self) -> str:
        text = f"{self.results:,} results, {self.missing:,} missing, {self.repeated:,} repeated"
        return text + (f", {self.unexpected:,} that should not be there" if self.unexpected else "")


def compare_with_duckdb(input_folder: Path, result_files: Sequence[Path], scratch: Path) -> Verdict:
    """Compute the query from the input's files, and count what differs."""
    with duckdb.connect(config={"temp_directory": str(scratch), "threads": 2}) as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, alias in ALIASES.items():
            # DuckDB does not accept a prepared parameter here.
            files = _quoted(str(input_folder / name / "*.parquet"))
            database.execute(
                f"CREATE TABLE {name} AS SELECT * REPLACE (epoch_us(ts) AS ts) FROM read_parquet({files}) AS {alias}"
            )
        database.execute(f"CREATE VIEW expected AS {_expected()}")
        if result_files:
            files = f"[{', '.join(_quoted(str(path)) for path in result_files)}]"
            found = (
                "SELECT visit, search, view, cart, purchase, amount, epoch_us(valid_from) AS valid_from, "
                f"epoch_us(valid_to) AS valid_to FROM read_parquet({files})"
            )
        else:
            found = "SELECT * FROM expected LIMIT 0"
        database.execute(f"CREATE VIEW found AS {found}")
        counted = database.execute(
            """
            SELECT coalesce(sum(found), 0), coalesce(sum(greatest(expected - found, 0)), 0),
                   coalesce(sum(CASE WHEN expected > 0 THEN greatest(found - expected, 0) END), 0),
                   coalesce(sum(CASE WHEN expected = 0 THEN found END), 0)
            FROM (SELECT * EXCLUDE (is_expected), count(*) FILTER (is_expected) AS expected,
                         count(*) FILTER (NOT is_expected) AS found
                  FROM (SELECT *, true AS is_expected FROM expected
                        UNION ALL SELECT *, false AS is_expected FROM found)
                  GROUP BY ALL)
            """
        ).fetchall()
    return Verdict(*(int(count) for count in counted[0]))


def _expected() -> str:
    """The query in plain SQL: rows of one visit, no two of them further apart than the window is long."""
    times = ", ".join(f"{alias}.ts" for alias in ALIASES.values())
    near = " AND ".join(f"abs({x}.ts - {y}.ts) <= {_WINDOW}" for x, y in combinations(ALIASES.values(), 2))
    return (
        "SELECT o.visit, s.id AS search, v.id AS view, c.id AS cart, o.id AS purchase, o.amount, "
        f"greatest({times}) AS valid_from, least({times}) + {_WINDOW + 1} AS valid_to "
        f"FROM {', '.join(f'{name} {alias}' for name, alias in ALIASES.items())} "
        f"WHERE s.visit = v.visit AND v.visit = c.visit AND c.visit = o.visit AND {near}"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
