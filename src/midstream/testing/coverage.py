"""What migration cases cover: which features of plans, migrations and moments were met together.

A *situation* is one operator of the plan that a migration leads to, together with that migration: a plan with four
operators gives four situations. A *feature* is one property of a situation, in one of seven dimensions:

- operator: join, distinct, aggregate, difference or union.
- below: what is next below an input, which is a stream or an operator (selections, projections and aliases aside). An
  operator with two inputs may have two such features.
- window: the kinds of windows beneath the operator: range, now, unbounded, slide, none (a stream without a window); and
  "different slides" where sliding windows of different slides meet.
- strategy: the strategy with its options.
- overlap: "overlapping" if another migration was in progress when this one started, otherwise "alone".
- rebuild: when derived state was thrown away in the same run: before, during, after the migration; or "no rebuild".
- moment: where the watermark stood when the migration began, against each slide of the plan: at a boundary, a tick
  before one, a tick after one, between; or "no slide" in the plan, or "no watermark" yet.

A *pair* is two features of one situation, a *triple* three. Both may have two features of one dimension where a
situation can: a join over a distinct and an aggregate, a slide beside a range. Migrations that are refused, that lead
to the plan in force, or to a plan with a multi-way join, count for nothing.

Not all can occur together. `RULES` says which cannot, and why; every other pair and triple is *reachable*. The rules
follow from the language and from what strategies refuse, never from what has been seen: what no case has met is
missing.

>>> coverage = Coverage()
>>> coverage.reached(2), len(reachable(2)) > 500
(0, True)
>>> why_unreachable([Feature("strategy", "moving-state"), Feature("rebuild", "during")])
'moving-state is over when migrate() returns'
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

from midstream.algebra.plan import Aggregate, Difference, Distinct, Join, MultiJoin, Plan, Union, Window
from midstream.algebra.window_spec import WindowSpec
from midstream.testing.migration_cases import STRATEGIES, PlayedMigration

__all__ = ["DIMENSIONS", "RULES", "Coverage", "Feature", "features_of", "reachable", "why_unreachable"]

_OPERATORS: dict[type[Plan], str] = {
    Join: "join",
    Distinct: "distinct",
    Aggregate: "aggregate",
    Difference: "difference",
    Union: "union",
}
DIMENSIONS: dict[str, list[str]] = {
    "operator": list(_OPERATORS.values()),
    "below": ["stream", *_OPERATORS.values()],
    "window": ["range", "now", "unbounded", "slide", "none", "different slides"],
    # Pause-drain-resume refuses plans with state, and a query without state has a single plan.
    "strategy": [label for label in STRATEGIES if label != "pause-drain-resume"],
    "overlap": ["alone", "overlapping"],
    "rebuild": ["no rebuild", "before", "during", "after"],
    "moment": ["at a boundary", "a tick before", "a tick after", "between", "no slide", "no watermark"],
}


class Feature(NamedTuple):
    """One property of a situation."""

    dimension: str
    value: str

    def __str__(self) -> str:
        return f"{self.dimension}: {self.value}"


_FEATURES = [Feature(dimension, value) for dimension, values in DIMENSIONS.items() for value in values]
_BITS = {feature: 1 << place for place, feature in enumerate(_FEATURES)}


class _Having:
    """The values of some features by dimension, for the rules to look at."""

    def __init__(self, features: Iterable[Feature]) -> None:
        values: dict[str, set[str]] = defaultdict(set)
        for feature in features:
            values[feature.dimension].add(feature.value)
        self.operators, self.below, self.windows = values["operator"], values["below"], values["window"]
        self.strategies, self.overlaps = values["strategy"], values["overlap"]
        self.rebuilds, self.moments = values["rebuild"], values["moment"]

    def strategy_is(self, *names: str) -> bool:
        """Whether a strategy begins with one of the names."""
        return any(label.startswith(names) for label in self.strategies)


_TOTALS = {"distinct", "aggregate", "difference"}
_GEN_MIG = tuple(label for label, (name, _) in STRATEGIES.items() if name == "gen-mig")
_UNARY = {"distinct", "aggregate"}

RULES: list[tuple[str, Callable[[_Having], bool]]] = [
    (
        "a situation has one operator, one strategy, and overlaps or not",
        lambda having: max(len(having.operators), len(having.strategies), len(having.overlaps)) > 1,
    ),
    (
        "where there was no rebuild, there was none before, during or after",
        lambda having: "no rebuild" in having.rebuilds and len(having.rebuilds) > 1,
    ),
    (
        "without a watermark or a slide the watermark stands nowhere against a slide",
        lambda having: bool({"no watermark", "no slide"} & having.moments) and len(having.moments) > 1,
    ),
    (
        "a sliding window is a slide of the plan",
        lambda having: "no slide" in having.moments and bool({"slide", "different slides"} & having.windows),
    ),
    ("distinct and aggregate have one input", lambda having: bool(_UNARY & having.operators) and len(having.below) > 1),
    ("no operator has more than two inputs", lambda having: len(having.below) > 2),
    (
        "an operator with one input, which is a stream, has one window beneath it",
        lambda having: (
            bool(_UNARY & having.operators) and "stream" in having.below and "different slides" in having.windows
        ),
    ),
    (
        "only a union may stand over a stream without a window: others would keep its rows for ever",
        lambda having: "none" in having.windows and bool(having.operators - {"union"}),
    ),
    (
        "between a stream without a window and the root there are only unions",
        lambda having: "none" in having.windows and len(having.below) == 2 and not having.below & {"stream", "union"},
    ),
    (
        "parallel-track and gen-mig with reference points refuse plans with distinct, aggregate or difference",
        lambda having: (
            having.strategy_is("parallel-track", "reference-point")
            and bool(_TOTALS & (having.operators | having.below))
        ),
    ),
    (
        "parallel-track and gen-mig refuse windows that never end",
        lambda having: having.strategy_is("parallel-track", *_GEN_MIG) and bool({"unbounded", "none"} & having.windows),
    ),
    (
        "moving-state is over when migrate() returns",
        lambda having: having.strategy_is("moving-state") and "during" in having.rebuilds,
    ),
]
"""What cannot occur together: the reason, and whether features contradict it."""


def why_unreachable(features: Collection[Feature]) -> str | None:
    """The reason why no situation has all of these features, or None."""
    having = _Having(features)
    return next((reason for reason, contradicts in RULES if contradicts(having)), None)


@cache
def reachable(size: int) -> frozenset[int]:
    """The reachable pairs (size 2) or triples (size 3), as sums of bits."""
    found = (group for group in combinations(_FEATURES, size) if why_unreachable(group) is None)
    return frozenset(sum(_BITS[feature] for feature in group) for group in found)


def features_of(migration: PlayedMigration) -> list[set[Feature]]:
    """The situations of a migration."""
    if any(isinstance(node, MultiJoin) for node in migration.plan.walk()):
        return []
    slides = {window.window.slide for window in migration.plan.windows() if window.window.slide is not None}
    common = {
        Feature("strategy", migration.strategy),
        Feature("overlap", "overlapping" if migration.overlaps else "alone"),
        *(Feature("rebuild", moment) for moment in migration.rebuilds or ["no rebuild"]),
        *(Feature("moment", moment) for moment in _moments(migration.watermark, slides)),
    }
    return [own | common for own in _operators(migration.plan)]


@lru_cache(maxsize=64)
def _operators(plan: Plan) -> list[set[Feature]]:
    """Per operator of the plan, the features that do not depend on the migration."""
    found = []
    for node in plan.walk():
        if type(node) not in _OPERATORS:
            continue
        specs = [window.window for window in node.windows()]
        kinds = {_window_kind(spec) for spec in specs}
        if len({spec.slide for spec in specs if spec.slide is not None}) > 1:
            kinds.add("different slides")
        below = {_OPERATORS.get(type(part), "stream") for part in map(_nearest, node.inputs)}
        found.append(
            {
                Feature("operator", _OPERATORS[type(node)]),
                *(Feature("below", value) for value in below),
                *(Feature("window", kind) for kind in kinds),
            }
        )
    return found


def _nearest(plan: Plan) -> Plan:
    """The operator or stream next below: selections, projections and aliases are passed over."""
    while type(plan) not in _OPERATORS and not isinstance(plan, Window):
        (plan,) = plan.inputs
    return plan


def _window_kind(spec: WindowSpec) -> str:
    if spec.width is None:
        return "unbounded" if spec.declared else "none"
    if spec.slide is not None:
        return "slide"
    return "range" if spec.width else "now"


def _moments(watermark: int | None, slides: Collection[int]) -> set[str]:
    if watermark is None:
        return {"no watermark"}
    found = set()
    for slide in slides:
        near = {0: "at a boundary", 1: "a tick after", slide - 1: "a tick before"}
        past = watermark % slide
        # One tick from a boundary on both sides, where the slide is two ticks.
        found |= {"a tick before", "a tick after"} if slide == 2 and past else {near.get(past, "between")}
    return found or {"no slide"}


class Coverage:
    """How often each pair and triple was met. Two coverages add up."""

    def __init__(self, counts: Mapping[int, Mapping[int, int]] | None = None) -> None:
        self.counts: dict[int, Counter[int]] = {size: Counter((counts or {}).get(size, {})) for size in (2, 3)}

    def add(self, migrations: Iterable[PlayedMigration]) -> None:
        """Count the situations of these migrations."""
        for migration in migrations:
            for features in features_of(migration):
                bits = sorted(_BITS[feature] for feature in features if feature in _BITS)
                for size, counter in self.counts.items():
                    counter.update(map(sum, combinations(bits, size)))

    def update(self, counts: Mapping[int, Mapping[int, int]]) -> None:
        """Add the counts of another coverage."""
        for size, counter in self.counts.items():
            counter.update(counts[size])

    def reached(self, size: int) -> int:
        """How many of the reachable pairs or triples were met."""
        return len(reachable(size) & self.counts[size].keys())

    def share(self, size: int) -> float:
        """The share of the reachable pairs or triples that were met."""
        return self.reached(size) / len(reachable(size))

    def missing(self, size: int) -> list[tuple[Feature, ...]]:
        """The reachable pairs or triples that were not met."""
        return [_features(group) for group in sorted(reachable(size) - self.counts[size].keys())]

    def contradictions(self, size: int) -> list[tuple[Feature, ...]]:
        """Pairs or triples that were met though a rule says that they cannot be."""
        return [_features(group) for group in sorted(self.counts[size].keys() - reachable(size))]

    def by_kind(self, size: int) -> dict[tuple[str, ...], tuple[int, int]]:
        """Per kind of pair or triple, which is its dimensions: how many were met, and how many are reachable."""
        totals: dict[tuple[str, ...], list[int]] = {
            kind: [0, 0] for kind in combinations_with_replacement(DIMENSIONS, size)
        }
        for group in reachable(size):
            entry = totals[tuple(feature.dimension for feature in _features(group))]
            entry[1] += 1
            entry[0] += group in self.counts[size]
        return {kind: (met, all_of) for kind, (met, all_of) in totals.items() if all_of}

    def table(self, most_missing: int = 20) -> str:
        """Reached and reachable by kind, and what is missing, as text."""
        lines = []
        for size, name in ((2, "pairs"), (3, "triples")):
            lines.append(f"{name}: {self.reached(size)} of {len(reachable(size))} reachable")
            lines += [
                f"  {' × '.join(kind):40} {met:5} of {all_of:5}"
                for kind, (met, all_of) in self.by_kind(size).items()
                if size == 2 or met < all_of
            ]
            missing = self.missing(size)
            lines += [f"  missing: {', '.join(map(str, group))}" for group in missing[:most_missing]]
            lines += [f"  … and {len(missing) - most_missing} more"] * (len(missing) > most_missing)
        return "\n".join(lines)


def _features(group: int) -> tuple[Feature, ...]:
    return tuple(feature for feature, bit in _BITS.items() if group & bit)
