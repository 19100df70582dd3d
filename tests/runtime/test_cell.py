"""What a cell counts and numbers, and when it is not to be trusted any more."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, LocalRun, Stream
from midstream.errors import BrokenRun, MigrationRefused
from midstream.migration.jisc import JustInTimeStateCompletion
from midstream.runtime import cell

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
QUERY = ContinuousQuery(
    "SELECT a.k FROM a [RANGE 1000], b [RANGE 1000], c [RANGE 1000], d [RANGE 1000] "
    "WHERE a.k = b.k AND b.k = c.k AND c.k = d.k",
    [Stream(name, SCHEMA, "ts") for name in "abcd"],
)
KEYS = 50


def rows(now: int, keys: range, streams: str = "abcd") -> dict[str, pa.Table]:
    return {name: pa.table({"ts": [now] * len(keys), "k": list(keys)}, schema=SCHEMA) for name in streams}


def filled() -> LocalRun:
    """A run with one row of each key per stream, and the states (a b), (a b c) of them."""
    run = QUERY.run_locally("((a b) c) d")
    run.push(rows(0, range(KEYS)))
    return run


@pytest.mark.parametrize(("strategy", "options"), [("jisc", {"as_published": True}), ("moving-state", {})])
def test_rows_are_recomputed_by_one_migration_though_another_overtakes_it(strategy, options):
    """Both counted what was computed for a state that passed from the first to the second."""

    def asked_for(keys: range, run: LocalRun) -> None:
        # Completed are the keys of these rows, and no others.
        run.push(rows(1, keys, "a"))

    run, alone = filled(), filled()
    first, only = (each.migrate("a (d (b c))", "jisc", as_published=True) for each in (run, alone))
    asked_for(range(10), run)
    before = first.rows_recomputed
    # The same states, on other sides.
    second = run.migrate("(d (b c)) a", strategy, **options)
    asked_for(range(10, 30), run)
    asked_for(range(30 if strategy == "jisc" else KEYS), alone)
    assert (first.rows_recomputed, first.state) == (before, "completed")
    assert 0 < before < only.rows_recomputed == before + second.rows_recomputed


def test_a_refused_migration_has_no_number(monkeypatch):
    run = filled()

    def refused(self, context):
        raise MigrationRefused("not now")

    with monkeypatch.context() as patched:
        patched.setattr(JustInTimeStateCompletion, "begin", refused)
        with pytest.raises(MigrationRefused):
            run.migrate("a (d (b c))")
    migration = run.migrate("a (d (b c))")
    assert int(migration) == run._cell.migrations == run._cell.record(1).number == 1


def test_a_run_whose_rebuild_failed_is_not_trusted(monkeypatch):
    """Its plan had no state then, and results were missing."""
    run = filled()
    with monkeypatch.context() as patched:
        patched.setattr(cell, "rebuilt", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.rebuild()
    with pytest.raises(BrokenRun, match=r"(?s)rebuild failed half-way.*ZeroDivisionError"):
        run.push(rows(1, range(KEYS)))
