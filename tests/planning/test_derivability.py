"""A plan is recognised as one of a query's by what it computes: all that the rules reach, and no other query's."""

from itertools import islice

import pyarrow as pa
import pytest
from hypothesis import given

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan_json import plan_from_json, plan_to_json
from midstream.planning import derivability
from midstream.testing import scenarios
from tests.examples import random_examples

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.int64()})
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abcde"]
FROM = "FROM a [RANGE 5], b [RANGE 5], c [RANGE 5], d [RANGE 5], e [RANGE 5]"
WHERE = "WHERE a.k = b.k AND b.x = c.x AND c.k = d.k AND d.x = e.x"
TEXTS = {
    "joins": f"SELECT a.x {FROM} {WHERE}",
    "distinct": f"SELECT DISTINCT a.x, e.k {FROM} {WHERE}",
    "aggregate": f"SELECT e.k, SUM(a.x) AS s, COUNT(*) AS n {FROM} {WHERE} GROUP BY e.k",
    "except": f"SELECT a.k {FROM} {WHERE} EXCEPT SELECT b.k FROM b [RANGE 5] EXCEPT SELECT c.k FROM c [RANGE 5]",
    "subquery": "SELECT DISTINCT q.k FROM (SELECT a.k, b.x FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k) q, "
    "c [RANGE 5], d [RANGE 5] WHERE q.x = c.x AND c.k = d.k",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_all_plans_of_a_query_are_its_own_without_trying_one_after_the_other(text, monkeypatch):
    monkeypatch.setattr(derivability, "MOST_PLANS", 0)
    query = ContinuousQuery(text, STREAMS)
    plans = list(islice(query.plans(), 400))
    assert len(plans) > 3
    for plan in plans[:20] + plans[20::19]:
        assert query.has(plan_from_json(plan_to_json(plan)))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_plan_of_another_query_is(text):
    query = ContinuousQuery(text, STREAMS)
    for other in (text.replace("c.k = d.k", "c.k <= d.k"), text.replace("[RANGE 5] EXCEPT", "[RANGE 6] EXCEPT")):
        if other != text:
            assert not any(query.has(plan) for plan in islice(ContinuousQuery(other, STREAMS).plans(), 6))


@random_examples(30)
@given(scenario=scenarios(max_streams=4))
def test_the_plans_of_any_query_are_its_own(scenario):
    query = ContinuousQuery(scenario.query_text, scenario.streams)
    assert all(query.has(plan) for plan in islice(query.plans(), 8))
