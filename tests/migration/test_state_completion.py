"""Completing a join side gives exactly the old tuples, each computed once, whoever asks for which keys in any order."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.algebra.expressions import conjunction
from midstream.algebra.identity import equality_sides
from midstream.algebra.plan import Join, Select
from midstream.engine.batch import Batch
from midstream.migration.state_completion import CompleteState, IncompleteState
from midstream.planning.rewrite import rewrite

examples = settings(derandomize=True, deadline=None, max_examples=25, database=None)

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "j": pa.int64(), "x": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "rst"]
LOWEST, HIGHEST = -(2**63), 2**63 - 1
WIDTH = 50

QUERIES = {
    name: ContinuousQuery(
        f"SELECT r.ts AS i, s.ts AS l, t.ts AS m FROM r [RANGE {WIDTH}], s [RANGE {WIDTH}], t [RANGE {WIDTH}]"
        f" WHERE s.x = t.x AND {condition}",
        STREAMS,
    )
    for name, condition in {
        "the key of the join below": "r.x = s.x",
        "a key of the left side": "r.k = s.k",
        "a key of the right side": "r.k = t.k",
        "two keys of one side": "r.k = t.k AND r.j = t.j",
        "a key on either side": "r.k = s.k AND r.j = t.j",
        "a range of the right side": "ABS(r.k - t.k) <= 1",
        "a range of the left side": "r.k <= s.k AND s.k <= r.k + 1",
        "no key": "r.k <> s.k",
    }.items()
}
"""(s t) is joined by x, and is asked for by r in different ways."""


def matches(name, r, s, t):
    """Whether a row (k, j, x) of r finds the pair."""
    return {
        "the key of the join below": r[2] == s[2],
        "a key of the left side": r[0] == s[0],
        "a key of the right side": r[0] == t[0],
        "two keys of one side": r[:2] == t[:2],
        "a key on either side": r[0] == s[0] and r[1] == t[1],
        "a range of the right side": abs(r[0] - t[0]) <= 1,
        "a range of the left side": r[0] <= s[0] <= r[0] + 1,
        "no key": r[0] != s[0],
    }[name]


def table(rows, time=0):
    """Rows of (k, j, x), one per tick."""
    columns = list(zip(*((time + i, *row) for i, row in enumerate(rows)), strict=True)) or [[]] * 4
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


class Case:
    """A run that was migrated from (r s) t to r (s t) when it had rows of s and t: the state of (s t) is incomplete."""

    def __init__(self, name, s, t):
        self.name, self.s, self.t = name, s, t
        # The rows of t come first, so that no row of s is purged before.
        self.run = QUERIES[name].run_locally("(r s) t")
        self.run.push({"t": table(t), "s": table(s)})
        self.run.migrate("r (s t)", "jisc", as_published=True)
        self.box = self.run._cell._executor
        self.top = self.box.joins[-1]
        self.side = self.top.sides[1]
        self.incomplete = self.side.incomplete
        assert isinstance(self.incomplete, IncompleteState)

    def expire(self, frontier):
        """Expire the state while keys are counted."""
        self.incomplete.counts_keys = True
        return self.incomplete.expire(frontier)

    def keyed(self, rows):
        """Rows of r, as they would ask."""
        layout = self.top.inputs[0].layout
        columns = table(rows)
        materialized = {i: columns[field.name].combine_chunks() for i, field in enumerate(layout.fields)}
        begins = np.zeros(len(rows), np.int64)
        references = np.full((1, len(rows)), -1)
        return self.top.sides[0].keyed(Batch(layout, begins, begins + 1, references, materialized))

    def complete(self, rows):
        new = self.keyed(rows)
        return self.found(self.incomplete.complete(new.lows, new.highs))

    def found(self, states):
        """The pairs in the states, as places in s and t."""
        pairs = Counter()
        for state in states:
            batch = self.side.batch_of(state.everything().tuples)
            names = [field.relation for field in batch.layout.fields if field.name == "ts"]
            times = [
                column.to_pylist()
                for field, column in zip(batch.layout.fields, batch.columns(), strict=True)
                if field.name == "ts"
            ]
            for pair in zip(*times, strict=True):
                at = dict(zip(names, pair, strict=True))
                pairs[at["s"], at["t"]] += 1
            begins = np.maximum(*(np.array(column, np.int64) for column in times))
            ends = np.minimum(*(np.array(column, np.int64) for column in times)) + WIDTH + 1
            assert batch.valid_from.tolist() == begins.tolist()
            assert batch.valid_to.tolist() == ends.tolist()
        return pairs

    @property
    def all_pairs(self):
        return Counter((i, k) for i, s in enumerate(self.s) for k, t in enumerate(self.t) if s[2] == t[2])

    def asked_pairs(self, rows):
        return Counter(
            pair
            for pair in self.all_pairs
            if any(matches(self.name, row, self.s[pair[0]], self.t[pair[1]]) for row in rows)
        )


row = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
rows = st.lists(row, max_size=7)
requests = st.lists(st.lists(row, max_size=3), max_size=5)

BY_KEY = [name for name in QUERIES if name not in ("a key on either side", "no key")]


@pytest.mark.parametrize("name", BY_KEY)
@examples
@given(rows, rows, requests)
def test_asking_for_keys_gives_the_old_pairs_with_these_keys_and_no_others(name, s, t, asked):
    case = Case(name, s, t)
    so_far = []
    for request in asked:
        so_far += request
        assert case.complete(request) == case.asked_pairs(so_far)
        assert case.incomplete.computed == case.asked_pairs(so_far).total()
    assert not case.incomplete.is_complete
    assert case.found(case.incomplete.complete_all()) == case.all_pairs
    assert case.incomplete.computed == case.all_pairs.total()
    assert case.incomplete.is_complete


@pytest.mark.parametrize("name", ["a key on either side", "no key"])
@examples
@given(rows, rows, row)
def test_where_no_side_has_the_key_all_is_computed_at_the_first_request(name, s, t, request):
    case = Case(name, s, t)
    assert case.complete([request]) == case.all_pairs
    assert case.incomplete.is_complete
    assert case.complete([request]) == case.all_pairs
    assert case.incomplete.computed == case.all_pairs.total()


@pytest.mark.parametrize("name", QUERIES)
def test_a_request_is_kept_until_its_keys_are_asked_for(name):
    """Requests of many are computed together."""
    case = Case(name, [(1, 0, 0), (2, 1, 1), (3, 1, 1)], [(1, 0, 0), (2, 1, 1), (3, 1, 1)])
    for request in ((1, 0, 0), (2, 1, 1)):
        new = case.keyed([request])
        case.incomplete.request(new.lows, new.highs)
        assert case.incomplete.computed == 0
    case.incomplete.forward()
    assert case.incomplete.computed == 0
    none = np.empty(0, np.int64)
    found = case.found(case.incomplete.complete(none, none))
    assert found >= case.asked_pairs([(1, 0, 0), (2, 1, 1)])
    assert case.incomplete.computed == found.total()


def test_driving_tuples_are_taken_once(monkeypatch):
    case = Case("a key of the right side", [(0, 0, 1)] * 3, [(1, 0, 1), (2, 0, 1), (1, 0, 2)])
    taken = []
    drive = IncompleteState._drive
    monkeypatch.setattr(
        IncompleteState, "_drive", lambda state, codes, t: (taken.append(len(codes)), drive(state, codes, t))
    )
    case.complete([(1, 0, 0)] * 4)
    assert taken == [2]
    case.complete([(1, 0, 0)])
    case.complete([(9, 0, 0)])
    assert sum(taken) == 2
    case.complete([(1, 0, 0), (2, 0, 0)])
    assert sum(taken) == 3


# Counting keys (section 4.3)


def test_the_past_is_whole_when_every_key_has_been_asked_for():
    case = Case("a key of the right side", [(0, 0, 1)], [(1, 0, 1), (2, 0, 1), (3, 0, 7)])
    assert not case.expire(0)
    case.complete([(1, 0, 0)])
    assert not case.expire(0)
    case.complete([(2, 0, 0), (5, 0, 0)])
    # Key 3 has no partner in s; it is open all the same, until somebody has looked.
    assert not case.expire(0)
    case.complete([(3, 0, 0)])
    assert case.expire(0)
    assert case.incomplete.is_complete


def test_the_past_is_whole_when_the_rows_of_the_other_keys_have_ended():
    """The rows of t begin at 0, 1, 2 and end 51 later; key 1 has two."""
    case = Case("a key of the right side", [(0, 0, 1)] * 9, [(1, 0, 1), (2, 0, 1), (1, 0, 1)])
    assert not case.expire(WIDTH + 1)
    assert not case.expire(WIDTH + 2)
    assert case.expire(WIDTH + 3)


@pytest.mark.parametrize(("asked", "whole_at"), [([], 53), ([1], 52), ([2], 53), ([1, 2], 0), ([7], 53)])
def test_keys_end_or_are_asked_for(asked, whole_at):
    """Key 1 lasts until 53, key 2 until 52; the rows of s last until 59."""
    case = Case("a key of the right side", [(0, 0, 1)] * 9, [(1, 0, 1), (2, 0, 1), (1, 0, 1)])
    case.expire(0)
    case.complete([(key, 0, 0) for key in asked])
    whole = [frontier for frontier in range(60) if case.expire(frontier)]
    assert whole[0] == whole_at


def test_keys_asked_for_before_counting_began_are_not_counted():
    case = Case("a key of the right side", [(0, 0, 1)] * 9, [(1, 0, 1), (2, 0, 1), (1, 0, 1)])
    case.complete([(1, 0, 0), (2, 0, 0)])
    assert case.expire(0)


def test_ranges_of_keys_are_counted():
    case = Case("a range of the right side", [(0, 0, 1)], [(1, 0, 1), (2, 0, 1), (5, 0, 1)])
    assert not case.expire(0)
    case.complete([(2, 0, 0)])
    assert not case.expire(0)
    case.complete([(4, 0, 0)])
    assert case.expire(0)


def test_without_counting_the_past_is_whole_when_all_old_rows_have_ended():
    """The last row, of s, ends at 59; the result of the last of t would have ended before."""
    case = Case("a key of the right side", [(0, 0, 1)] * 9, [(1, 0, 1)])
    case.complete([(1, 0, 0)])
    assert not case.incomplete.expire(58)
    assert case.incomplete.expire(59)


def test_what_has_ended_is_forgotten():
    case = Case("a key of the right side", [(0, 0, 1)] * 9, [(1, 0, 1)] * 4)
    case.complete([(1, 0, 0)])
    assert len(case.incomplete.memo) == 36
    # The last row of t ends at 54, and with it the last pair.
    case.incomplete.expire(53)
    assert len(case.incomplete.memo) > 0
    case.incomplete.expire(54)
    assert len(case.incomplete.memo) == 0


# Sweeping


@pytest.mark.parametrize("name", BY_KEY)
@examples
@given(rows, rows, st.lists(st.one_of(st.lists(row, max_size=3), st.integers(1, 4)), max_size=8))
def test_keys_are_swept_or_asked_for_in_any_order_and_computed_once(name, s, t, steps):
    case = Case(name, s, t)
    so_far = []
    for step in steps:
        if isinstance(step, int):
            before = case.incomplete.is_complete
            passed = case.incomplete.complete_ahead(step)
            assert passed == 0 or not before
            found = case.found([case.incomplete.memo])
        else:
            so_far += step
            found = case.complete(step)
        assert case.asked_pairs(so_far) <= found <= case.all_pairs
        assert case.incomplete.computed == found.total()
    for _ in range(20):
        case.incomplete.complete_ahead(1)
    assert case.incomplete.is_complete
    assert case.found([case.incomplete.memo]) == case.all_pairs
    assert case.incomplete.expire(0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_completing_ahead_reads_and_computes_about_as_many_tuples_as_asked(count):
    """Keys are never cut, so that more tuples of one key than asked for are possible."""
    case = Case("a key of the right side", [(0, 0, 1)], [(key, 0, 1) for key in range(20)])
    passed = [case.incomplete.complete_ahead(count) for _ in range(20)]
    assert case.incomplete.is_complete
    # Twenty are read and twenty computed.
    assert sum(passed) == 40
    assert max(passed) <= 2 * (count + 1)


def test_completing_ahead_is_bounded_by_what_it_computes():
    case = Case("a key of the right side", [(0, 0, 1)] * 50, [(key, 0, 1) for key in range(20)])
    passed = [case.incomplete.complete_ahead(40) for _ in range(20)]
    assert case.incomplete.is_complete
    assert sum(passed) == 20 + 20 * 50
    # Each tuple that is read has fifty partners: not forty of them are read, as without partners, but a few.
    assert max(passed) <= 4 * (1 + 50)


def test_nothing_is_swept_where_keys_do_not_help():
    case = Case("no key", [(1, 0, 1)], [(2, 0, 1)])
    assert case.incomplete.complete_ahead(10) == 0
    assert not case.incomplete.is_complete


@pytest.mark.parametrize("extreme", [LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])
def test_the_lowest_and_the_highest_code_are_swept_once(extreme):
    case = Case("a key of the right side", [(0, 0, 1)], [(extreme, 0, 1), (5, 0, 1)])
    for _ in range(4):
        case.incomplete.complete_ahead(1)
    assert case.incomplete.is_complete
    assert case.complete([(extreme, 0, 0), (5, 0, 0)]) == case.all_pairs
    assert case.incomplete.computed == 2


# Incomplete states over incomplete states


def test_a_known_past_is_as_whole_as_what_is_older():
    case = Case("a key of the right side", [(0, 0, 1)], [(1, 0, 1), (2, 0, 1)])
    known = CompleteState(case.side.state.copy())
    assert known.is_complete
    assert known.complete(np.array([1]), np.array([1])) == known.complete_all() == [known.state]
    later = CompleteState(case.side.state.copy(), case.incomplete)
    assert not later.is_complete
    later.request(np.array([1]), np.array([1]))
    assert case.found(later.complete(np.array([1]), np.array([1]))) == Counter({(0, 0): 1})
    assert case.found(later.complete_all()) == case.all_pairs
    assert later.is_complete


def select_above_join(node):
    """A join's conditions that are no equalities, as a selection above it."""
    if not isinstance(node, Join):
        return node
    apart = [predicate for predicate in node.predicates if equality_sides(predicate) is None]
    rest = Join(node.left, node.right, tuple(p for p in node.predicates if p not in apart))
    return Select(rest, conjunction(apart)) if apart else rest


@pytest.mark.parametrize("is_apart", [False, True])
@examples
@given(rows, rows, rows, rows, st.lists(row, max_size=4))
def test_conditions_below_the_side_are_applied(is_apart, s, t, more_s, more_t, asked):
    """A condition on s and t that is no equality is their join's, or a selection above it; what is completed passed."""
    text = (
        f"SELECT s.ts AS l, t.ts AS m FROM r [RANGE {WIDTH}], s [RANGE {WIDTH}], t [RANGE {WIDTH}]"
        " WHERE s.x = t.x AND s.k < t.k AND r.j = t.j"
    )
    query = ContinuousQuery(text, STREAMS)
    plan = query.plan("r (s t)")
    if is_apart:
        plan = query._own(rewrite(plan, select_above_join))
        assert "Select s.k < t.k" in plan.explain()
    run = query.run_locally("(r t) s")
    run.push({"s": table(s), "t": table(t)})
    run.migrate(plan, "jisc", as_published=True)
    results = [run.push({"s": table(more_s, 10), "t": table(more_t, 10)}), run.push({"r": table(asked, 20)})]
    expected = Counter(
        (i, k)
        for i, a in [*enumerate(s), *enumerate(more_s, 10)]
        for k, b in [*enumerate(t), *enumerate(more_t, 10)]
        for r in asked
        if a[2] == b[2] and a[0] < b[0] and r[1] == b[1]
    )
    found = Counter((result["l"], result["m"]) for part in results for result in part.to_pylist())
    assert found == expected
