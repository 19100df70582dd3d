"""Coverage counts situations as its definition says.

That its rules agree with what can be played is shown by ``tests/property/test_seeded_cases.py``.
"""

import pyarrow as pa
import pytest

from midstream import ContinuousQuery, Stream
from midstream.testing import Coverage
from midstream.testing.coverage import (
    DIMENSIONS,
    RULES,
    Feature,
    features_of,
    reachable,
    why_unreachable,
)
from midstream.testing.migration_cases import PlayedMigration

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
STREAMS = [Stream(name, SCHEMA, "ts") for name in "abc"]


def migration(text: str, watermark: int | None = 0, **options: object) -> PlayedMigration:
    plan = ContinuousQuery(text, STREAMS).plan()
    return PlayedMigration(1, "jisc", plan, watermark, **{"overlaps": False, **options})  # type: ignore[arg-type]


def values(features: set[Feature], dimension: str) -> set[str]:
    return {feature.value for feature in features if feature.dimension == dimension}


def test_each_operator_of_a_plan_is_a_situation() -> None:
    text = (
        "SELECT DISTINCT x.n FROM (SELECT k, COUNT(*) AS n FROM a [RANGE 8 SLIDE 2] GROUP BY k) x, b [RANGE 20] y,"
        " c [NOW] z WHERE y.k = z.k"
    )
    situations = features_of(migration(text))
    kinds = {tuple(sorted(values(features, "operator"))) for features in situations}
    assert kinds == {("distinct",), ("join",), ("aggregate",)}
    (aggregate,) = (features for features in situations if values(features, "operator") == {"aggregate"})
    assert values(aggregate, "below") == {"stream"}
    assert values(aggregate, "window") == {"slide"}
    assert values(aggregate, "rebuild") == {"no rebuild"}
    (distinct,) = (features for features in situations if values(features, "operator") == {"distinct"})
    assert values(distinct, "below") == {"join"}
    assert values(distinct, "window") == {"slide", "range", "now"}


def test_slides_of_different_length_are_a_feature() -> None:
    text = "SELECT a.k FROM a [RANGE 8 SLIDE {}], b [RANGE 7 SLIDE 3] WHERE a.k = b.k"
    (same,), (different,) = (features_of(migration(text.format(slide))) for slide in (3, 2))
    assert values(same, "window") == {"slide"}
    assert values(different, "window") == {"slide", "different slides"}


def test_a_union_may_stand_over_a_stream_without_a_window() -> None:
    (union, *_) = features_of(migration("SELECT k FROM a UNION ALL SELECT k FROM b [RANGE UNBOUNDED]"))
    assert values(union, "window") == {"none", "unbounded"}


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        (None, {"no watermark"}),
        (0, {"at a boundary"}),
        (10, {"at a boundary"}),
        (9, {"a tick before"}),
        (-1, {"a tick before"}),
        (6, {"a tick after"}),
        (7, {"between"}),
    ],
)
def test_moments_are_told_by_the_watermark(watermark: int | None, expected: set[str]) -> None:
    (distinct,) = features_of(migration("SELECT DISTINCT k FROM a [RANGE 7 SLIDE 5]", watermark))
    assert values(distinct, "moment") == expected


def test_moments_are_told_for_each_slide() -> None:
    text = "SELECT a.k FROM a [RANGE 8 SLIDE 2], b [RANGE 7 SLIDE 3] WHERE a.k = b.k"
    assert values(features_of(migration(text, 3))[0], "moment") == {"a tick before", "a tick after", "at a boundary"}
    assert values(features_of(migration("SELECT DISTINCT k FROM a [NOW]", 3))[0], "moment") == {"no slide"}


def test_pairs_and_triples_are_features_of_one_situation() -> None:
    coverage = Coverage()
    found = migration("SELECT DISTINCT k FROM a [RANGE 7]", overlaps=True, rebuilds=frozenset({"during"}))
    coverage.add([found])
    # Operator, below, window, strategy, overlap, rebuild, moment: one feature each.
    assert (coverage.reached(2), coverage.reached(3)) == (7 * 6 // 2, 7 * 6 * 5 // 6)
    coverage.add([found])
    assert set(coverage.counts[2].values()) == {2}
    again = Coverage(coverage.counts)
    again.update(coverage.counts)
    assert set(again.counts[3].values()) == {4}
    assert len(coverage.missing(2)) == len(reachable(2)) - 21


def test_every_rule_excludes_something_and_no_feature_alone() -> None:
    features = [Feature(dimension, value) for dimension, names in DIMENSIONS.items() for value in names]
    assert all(why_unreachable([feature]) is None for feature in features)
    pairs = [(a, b) for a in features for b in features if a < b]
    triples = [(a, b, c) for a, b in pairs for c in features if b < c]
    reasons = {why_unreachable(group) for group in (*pairs, *triples)}
    assert {reason for reason, _ in RULES} <= reasons


def test_what_is_unreachable_alone_is_unreachable_with_more() -> None:
    assert why_unreachable([Feature("operator", "join"), Feature("operator", "union")]) is not None
    triple = [Feature("strategy", "moving-state"), Feature("rebuild", "during"), Feature("operator", "join")]
    assert why_unreachable(triple) == "moving-state is over when migrate() returns"
    assert why_unreachable([Feature("strategy", "jisc"), Feature("rebuild", "during")]) is None


def test_the_table_has_every_kind_of_pair_and_what_is_missing() -> None:
    table = Coverage().table(most_missing=1)
    assert f"pairs: 0 of {len(reachable(2))} reachable" in table
    assert "operator × strategy" in table
    assert "missing: operator: join, below: stream" in table
