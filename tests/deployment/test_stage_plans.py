"""Where plans are cut into stages, and that the stages together compute what the plan does."""

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.algebra.plan import RemoteSource
from midstream.deployment.placement.stage_plans import StagePlan, stage_plan_from_json, stage_plan_to_json, stage_plans

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abc"]
NODES = {"a": ["d1", "d2"], "b": ["d3"], "c": ["d4"]}
JOIN = "SELECT x.k FROM a [RANGE 5] x, b [RANGE 5] y, c [RANGE 5] z WHERE x.k = y.k AND y.k = z.k"


def stages(text: str, number: int = 0, **options: bool) -> dict[str, StagePlan]:
    plan = list(ContinuousQuery(text, STREAMS).plans())[number]
    return {p.stage.id: p for p in stage_plans("q", plan, NODES, "cloud", **options)}


def test_each_physical_source_of_a_stream_is_a_stage_on_its_node():
    found = stages("SELECT k FROM a [RANGE 5]")
    assert {id: p.stage.pinned_to for id, p in found.items()} == {
        "q/a@d1": "d1",
        "q/a@d2": "d2",
        "q/sink": "cloud",
    }
    assert found["q/sink"].plan is None and found["q/sink"].stage.inputs == ("q/a@d1", "q/a@d2")
    assert found["q/a@d1"].source.stream.name == "a" and found["q/sink"].source is None


def test_every_join_is_a_stage_unless_they_are_kept_together():
    apart, together = stages(JOIN), stages(JOIN, joins_together=True)
    assert sum("join" in id for id in apart) == 2
    assert sum("join" in id for id in together) == 1
    (joins,) = (p for id, p in together.items() if "join" in id)
    assert joins.stage.is_stateful and len(joins.leaf_of) == 4, "two sources of a, one of b, one of c"


def test_joins_together_keep_their_stages_when_the_order_of_joins_changes():
    one, other = stages(JOIN, 0, joins_together=True), stages(JOIN, 1, joins_together=True)
    (joins,) = (id for id in one if "join" in id)
    assert one[joins].plan != other[joins].plan
    assert {id: (p.stage, p.leaf_of) for id, p in one.items()} == {id: (p.stage, p.leaf_of) for id, p in other.items()}


def test_union_all_needs_no_stage():
    found = stages("SELECT k FROM b [RANGE 5] UNION ALL SELECT k FROM c [RANGE 5]")
    assert [p.stage.pinned_to for p in found.values()] == ["d3", "d4", "cloud"]


def test_columns_that_are_computed_are_computed_after_the_source():
    found = stages("SELECT k + v AS s FROM b [RANGE 5] WHERE k > 1")
    (mapped,) = (p for id, p in found.items() if "map" in id)
    assert mapped.stage.pinned_to is None and not mapped.stage.is_stateful


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("SELECT DISTINCT k FROM b [RANGE 5]", "distinct"),
        ("SELECT k, COUNT(*) AS n FROM b [RANGE 5] GROUP BY k", "aggregate"),
        ("SELECT k FROM b [RANGE 5] EXCEPT SELECT k FROM c [RANGE 5]", "difference"),
    ],
)
def test_an_operator_that_keeps_state_is_a_stage_over_remote_sources(text, operator):
    (found,) = (p for id, p in stages(text).items() if operator in id)
    assert found.stage.is_stateful
    assert all(isinstance(leaf, RemoteSource) for leaf in found.plan.leaves())
    assert set(found.leaf_of.values()) == {leaf.identity for leaf in found.plan.leaves()}


@pytest.mark.parametrize("options", [{}, {"joins_together": True}])
def test_stages_survive_json(options):
    for plan in stages(JOIN, **options).values():
        again = stage_plan_from_json(stage_plan_to_json(plan))
        assert (again.stage, again.plan, dict(again.leaf_of)) == (plan.stage, plan.plan, dict(plan.leaf_of))
