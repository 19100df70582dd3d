"""SQL that CQL does not support, each with an alternative where there is one.

A word is listed if it can follow a complete part of a query. It is therefore never read as an alias, but can still name
a column: ``SELECT offset FROM records``.
"""

from __future__ import annotations

__all__ = ["CLAUSES", "RESERVED", "STATEMENTS"]

# ruff: noqa: SIM905  (lists of words read better as one text)

RESERVED = frozenset(
    "ALL AND AS BETWEEN BY CASE CROSS DISTINCT ELSE END EXCEPT FALSE FROM GROUP HAVING IN INNER INTERSECT IS JOIN LIKE"
    " NOT NULL ON OR SELECT THEN TRUE UNION WHEN WHERE WITH".split()
)
"""Words that are names only when quoted."""

STATEMENTS = frozenset(
    "ALTER ANALYZE BEGIN CALL COMMIT COPY CREATE DECLARE DELETE DESCRIBE DROP EXECUTE EXPLAIN GRANT INSERT MERGE PRAGMA"
    " REFRESH REPLACE REVOKE ROLLBACK SET SHOW TRUNCATE UPDATE USE VACUUM".split()
)
"""Words that start statements other than queries."""

_ORDER = "Each batch of results is ordered by valid_from; sort the result table for another order."
_LIMIT = "Cut the result table instead."
_OUTER = "Use JOIN ... ON, or EXCEPT for rows without a match."
_EXISTS = "Join with the other stream, and use SELECT DISTINCT."
_FUNCTION_WINDOW = "Give the stream a window, and group: FROM stream [RANGE ...] GROUP BY key."
_PATTERN = "Use LIKE, and LOWER(...) to ignore case."
_NULLS = "Write x IS NULL or x IS NOT NULL."

CLAUSES: dict[str, tuple[str, str | None]] = {
    "ORDER": ("ORDER BY is", _ORDER),
    "SORT": ("SORT BY is", _ORDER),
    "CLUSTER": ("CLUSTER BY is", None),
    "DISTRIBUTE": ("DISTRIBUTE BY is", None),
    "LIMIT": ("LIMIT is", _LIMIT),
    "OFFSET": ("OFFSET is", _LIMIT),
    "FETCH": ("FETCH is", _LIMIT),
    "TOP": ("TOP is", _LIMIT),
    "LEFT": ("outer joins are", _OUTER),
    "RIGHT": ("outer joins are", _OUTER),
    "FULL": ("outer joins are", _OUTER),
    "OUTER": ("outer joins are", _OUTER),
    "SEMI": ("semi joins are", _EXISTS),
    "ANTI": ("anti joins are", "Use EXCEPT for rows without a match."),
    "NATURAL": ("natural joins are", "Write the condition: JOIN ... ON a.key = b.key."),
    "ASOF": ("ASOF joins are", None),
    "POSITIONAL": ("positional joins are", None),
    "STRAIGHT_JOIN": ("STRAIGHT_JOIN is", "Write JOIN; the plan decides the order."),
    "USING": ("USING is", "Write the condition: ON a.key = b.key."),
    "LATERAL": ("LATERAL is", None),
    "APPLY": ("APPLY is", None),
    "UNNEST": ("UNNEST is", None),
    "VALUES": ("VALUES is", "Push the values as a stream."),
    "TABLESAMPLE": ("TABLESAMPLE is", None),
    "PIVOT": ("PIVOT is", "Use CASE inside aggregates."),
    "UNPIVOT": ("UNPIVOT is", "Use UNION ALL."),
    "MATCH_RECOGNIZE": ("MATCH_RECOGNIZE is", None),
    "INTERSECT": ("INTERSECT is", "Join both sides on all their columns, and use SELECT DISTINCT."),
    "WITH": ("common table expressions are", "Write the subquery in FROM: FROM (SELECT ...) name."),
    "WINDOW": ("the WINDOW clause is", _FUNCTION_WINDOW),
    "QUALIFY": ("QUALIFY is", _FUNCTION_WINDOW),
    "OVER": ("window functions are", _FUNCTION_WINDOW),
    "FILTER": ("FILTER is", "Use CASE inside the aggregate: SUM(CASE WHEN condition THEN x END)."),
    "WITHIN": ("WITHIN GROUP is", None),
    "IGNORE": ("IGNORE NULLS is", "Aggregates always ignore NULLs."),
    "RESPECT": ("RESPECT NULLS is", None),
    "INTO": ("INTO is", "Take the results from the running query."),
    "FOR": ("FOR is", None),
    "CONNECT": ("CONNECT BY is", None),
    "START": ("START WITH is", None),
    "EXCLUDE": ("* EXCLUDE is", "Name the columns."),
    "RENAME": ("* RENAME is", "Name the columns."),
    "ESCAPE": ("ESCAPE is", None),
    "ILIKE": ("ILIKE is", _PATTERN),
    "RLIKE": ("RLIKE is", _PATTERN),
    "REGEXP": ("REGEXP is", _PATTERN),
    "GLOB": ("GLOB is", _PATTERN),
    "SIMILAR": ("SIMILAR TO is", _PATTERN),
    "ISNULL": ("ISNULL is", _NULLS),
    "NOTNULL": ("NOTNULL is", _NULLS),
    "COLLATE": ("COLLATE is", "Text is compared by its characters' codes."),
    "DIV": ("DIV is", "Write FLOOR(a / b)."),
    "XOR": ("XOR is", "Write a <> b."),
    "OVERLAPS": ("OVERLAPS is", None),
}
"""The words, each with what it is called in "... not supported" and a hint."""
