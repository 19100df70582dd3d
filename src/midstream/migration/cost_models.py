"""What replacing a running join tree costs, from rates, reduction factors and the window.

The models of Zhu et al. 2004 (section 5: moving state, parallel track), Krämer et al. 2006 (GenMig's length) and JISC
(section 5.2: how many states survive a swap of two streams), each derived again; where a printed equation is wrong, the
function says so. They foretell *counts*, comparisons, inserts and purges, which unit costs turn into time.

A tree is a stream's name or a pair of trees; ``Workload`` says how fast the streams are and what the predicates keep.
In the plans of Zhu et al., figure 4, two states exist in the new box only and are recomputed:

>>> workload = Workload(
...     rates={"A": 8.0, "B": 8.0, "C": 8.0, "D": 8.0}, window=2.0,
...     factors={frozenset("AB"): 0.5, frozenset("BC"): 0.25, frozenset("CD"): 0.125})
>>> old, new = ((("A", "B"), "C"), "D"), ("A", (("B", "C"), "D"))
>>> sorted("".join(sorted(state)) for state in unmatched_states(old, new))
['BC', 'BCD']
>>> recompute_states(old, new, workload)
Work(comparisons=1280.0, inserts=192.0, purges=0.0)
>>> parallel_track_length(old, workload.window, Purge.LATEST), genmig_length(workload.window)
(4.0, 2.0)

They do not help where their assumptions fail: one window for all streams (the longest gives an upper bound), steady
rates, predicates that are independent of time, joins that compare every pair (for joins by key, results and inserts
stay right and comparisons are an upper bound), and a system that keeps up with its input. Rates are per unit of time,
and the window, durations and unit costs are in that unit; which one does not matter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

__all__ = [
    "Flow",
    "JoinTree",
    "Purge",
    "UnitCosts",
    "Work",
    "Workload",
    "asymptotic_complete_states",
    "asymptotic_variance_of_complete_states",
    "deviation_bound",
    "expected_complete_states",
    "flow",
    "genmig_length",
    "height",
    "join_output_rate",
    "joins",
    "moving_state_length",
    "new_box_output_rate",
    "new_box_results",
    "new_box_work",
    "old_box_work",
    "parallel_track_length",
    "recompute_state",
    "recompute_states",
    "side_by_side_work",
    "state_matching_time",
    "state_moving_time",
    "states",
    "steady_join_work",
    "swap_probability",
    "unmatched_states",
    "variance_of_complete_states",
]

JoinTree: TypeAlias = "str | tuple[JoinTree, JoinTree]"
"""A stream, or a join of two trees; no stream twice."""

Streams: TypeAlias = frozenset[str]
"""The streams under a node. They identify a state, too (Zhu et al. 2004, section 4.1.1)."""


class Purge(Enum):
    """When a combined tuple leaves a state. For singleton tuples both rules are the same.

    Zhu et al. 2004 use both without saying so: purging as in section 2.2 and the inserts of equation 1 follow
    ``EARLIEST``; Lemma 2.2, equation 2 for combined tuples, and equations 4 and 8 follow ``LATEST``.
    """

    EARLIEST = "earliest"
    """W after its earliest sub-tuple: it lives as long as all of them. The rule of CQL's validities and of our engine.
    At any time a state holds each valid combination once, and k streams give k Πλ W^(k-1) Πσ results per unit."""

    LATEST = "latest"
    """W after its latest sub-tuple: to the join above it is like a new singleton tuple, so that equation 2 can be
    applied again and again. k streams give 2^(k-1) Πλ W^(k-1) Πσ results per unit: 4 instead of 3 for three streams."""


@dataclass(frozen=True)
class UnitCosts:
    """Time for one step of each kind (Zhu et al. 2004, table 1)."""

    join: float
    """Tj: join a pair of tuples, that is compare them."""
    insert: float
    """Ts: insert a tuple into a state; equation 5 takes the same for a purge."""
    match: float = 0.0
    """Tm: compare two state IDs."""
    move: float = 0.0
    """Tc: create a cursor to a state that is moved."""


@dataclass(frozen=True)
class Workload:
    """Streams with their rates λ, the global window W, and the reduction factors σ of the predicates."""

    rates: Mapping[str, float]
    window: float
    factors: Mapping[Streams, float] = field(default_factory=dict)
    """The share of pairs that a predicate between two streams keeps. A key of three or more streams corrects for
    correlation, and may exceed 1: for a.k = b.k = c.k over d values, 1/d for each of three pairs and d for the three.
    """

    def __post_init__(self) -> None:
        assert self.window >= 0 and all(rate >= 0 for rate in self.rates.values())
        assert all(len(streams) > 1 and factor >= 0 for streams, factor in self.factors.items())

    def share(self, streams: Streams) -> float:
        """The share of all combinations of the streams' tuples that satisfy every predicate among them."""
        return _product(self.factors_within(streams))

    def factors_within(self, streams: Streams) -> list[float]:
        """The factors of the predicates among the streams."""
        return [factor for among, factor in self.factors.items() if among <= streams]

    def factor(self, left: Streams, right: Streams) -> float:
        """The reduction factor σ of a join of the two sides: that of every predicate which neither side could check."""
        together = left | right
        return _product(
            factor
            for among, factor in self.factors.items()
            if among <= together and not among <= left and not among <= right
        )


def _product(values: Iterable[float]) -> float:
    """Large and small values in turns: a join of a hundred streams would leave a float's range otherwise."""
    ordered = deque(sorted(values))
    product = 1.0
    while ordered:
        product *= ordered.pop() if product <= 1 else ordered.popleft()
    return product


@dataclass(frozen=True)
class Flow:
    """An input of a join: tuples arriving per unit of time, and tuples in its state."""

    rate: float
    size: float


@dataclass(frozen=True)
class Work:
    """Numbers of elementary steps."""

    comparisons: float = 0.0
    inserts: float = 0.0
    purges: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.comparisons + other.comparisons, self.inserts + other.inserts, self.purges + other.purges)

    def time(self, costs: UnitCosts) -> float:
        """The time they take; a purge takes as long as an insert (Zhu et al. 2004, equation 5)."""
        return costs.join * self.comparisons + costs.insert * (self.inserts + self.purges)


# The tree


def joins(tree: JoinTree) -> list[tuple[Streams, Streams]]:
    """The joins of a tree as the streams on their two sides, inputs first."""
    found: list[tuple[JoinTree, JoinTree]] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            found.append(node)
            pending.extend(node)
    below: dict[int, Streams] = {}
    sides: list[tuple[Streams, Streams]] = []
    for join in reversed(found):
        left, right = (below[id(s)] if isinstance(s, tuple) else frozenset([s]) for s in join)
        assert not left & right, "a stream occurs twice in a join tree"
        below[id(join)] = left | right
        sides.append((left, right))
    return sides


def height(tree: JoinTree) -> int:
    """Joins on the longest way from a stream to the output: 1 for one join."""
    heights: dict[Streams, int] = {}
    for left, right in joins(tree):
        heights[left | right] = 1 + max(heights.get(left, 0), heights.get(right, 0))
    return max(heights.values(), default=0)


def states(tree: JoinTree) -> frozenset[Streams]:
    """The IDs of the states that the joins keep: one for each input. The tree's own output is kept by nobody."""
    return frozenset(side for join in joins(tree) for side in join)


def unmatched_states(old: JoinTree, new: JoinTree) -> frozenset[Streams]:
    """The new tree's states that the old one does not have (in the words of JISC, definition 1: incomplete)."""
    return states(new) - states(old)


# Rates and sizes


def join_output_rate(left: Flow, right: Flow, factor: float) -> float:
    """Results per unit of time: every new tuple meets the other side's state (Zhu et al. 2004, equation 2).

    With sizes λW this is 2 λa λb W σ. For a combined input λW holds under ``Purge.LATEST`` only.
    """
    return (left.rate * right.size + right.rate * left.size) * factor


def flow(streams: Streams, workload: Workload, purge: Purge = Purge.EARLIEST) -> Flow:
    """The output of a running subtree over the streams, and the state it fills above; the tree's shape does not matter.

    Intuitively, under ``EARLIEST`` the state holds the valid combinations, Π(λW) Πσ, and any of the k streams may bring
    a result's last sub-tuple. Under ``LATEST`` each join doubles the rate (equation 2), and the size is rate times W.
    """
    last, *others = (workload.rates[stream] for stream in sorted(streams))
    doubled = 2 if purge is Purge.LATEST else 1
    partners = (doubled * rate * workload.window for rate in others)
    rate = _product([last, *partners, *workload.factors_within(streams)])
    return Flow(rate if purge is Purge.LATEST else rate * len(streams), rate * workload.window)


# Moving state


def recompute_state(left: Flow, right: Flow, factor: float) -> Work:
    """Recompute the state of a join's output from the join's two states (Zhu et al. 2004, equation 1)."""
    pairs = left.size * right.size
    return Work(comparisons=pairs, inserts=pairs * factor)


def recompute_states(old: JoinTree, new: JoinTree, workload: Workload, purge: Purge = Purge.EARLIEST) -> Work:
    """Recompute every unmatched state of the new tree, also those below a matched one (algorithm 1).

    With ``Purge.LATEST`` and the plans of figure 4 this is equation 8. That equation counts twice the comparisons of
    the upper state (and its inserts): it takes λBC W = 2 λB λC W² σ for the size of a state of which equation 1 has
    just inserted λB λC W² σ tuples. ``Purge.EARLIEST`` counts what is really there.
    The number grows with W to the power of the streams in the largest unmatched state. (JISC, section 5.1.1, says to
    the power of the tree's height, which is true of left-deep trees only.)
    """
    unmatched = unmatched_states(old, new)
    total = Work()
    for left, right in joins(new):
        if left | right in unmatched:
            sides = flow(left, workload, purge), flow(right, workload, purge)
            total += recompute_state(*sides, workload.factor(left, right))
    return total


def state_matching_time(old: JoinTree, new: JoinTree, costs: UnitCosts) -> float:
    """Tmatch = 4 N M Tm: each of the old box's 2N state IDs is compared with each of the new one's 2M."""
    return 4 * len(joins(old)) * len(joins(new)) * costs.match


def state_moving_time(old: JoinTree, new: JoinTree, costs: UnitCosts) -> float:
    """Tmove = 2 min(N, M) Tc: an upper bound, as if every state of the smaller box had a match."""
    return 2 * min(len(joins(old)), len(joins(new))) * costs.move


def moving_state_length(
    old: JoinTree, new: JoinTree, workload: Workload, costs: UnitCosts, purge: Purge = Purge.EARLIEST
) -> float:
    """How long moving state is silent: matching, moving and recomputing (Zhu et al. 2004, equation 3)."""
    recomputing = recompute_states(old, new, workload, purge).time(costs)
    return state_matching_time(old, new, costs) + state_moving_time(old, new, costs) + recomputing


# Two boxes side by side: parallel track and GenMig


def parallel_track_length(old: JoinTree, window: float, purge: Purge) -> float:
    """How long until the old box holds no tuple with an old sub-tuple.

    Zhu et al. 2004, equation 4, is ``Purge.LATEST``: W for a single level of joins, else 2W, because an old tuple may
    combine with a new one until W, and the result stays for another W. No third W follows for higher trees, as long as
    a join still checks all timestamps: by then the old sub-tuple is too old for any partner. (Would combined tuples
    bear their latest timestamp alone, as equation 2 assumes when applied upwards, a tree of height h took h W.)
    Under ``Purge.EARLIEST`` whatever has an old sub-tuple goes with it, and W is enough for any height.
    """
    return 2 * window if purge is Purge.LATEST and height(old) > 1 else window


def genmig_length(window: float, start_skew: float = 0.0) -> float:
    """From the first input's start of migration to the split time (Krämer et al. 2006, section 4.4).

    ``start_skew`` lies between the first and the last input's start; the one tick and the ε of Algorithm 1 are left
    out. The length is w for any tree.
    """
    return start_skew + window


def steady_join_work(left: Flow, right: Flow, duration: float) -> Work:
    """One join in steady state: every tuple is compared, inserted, and some time purged (Zhu et al. 2004, equation 5).

    The paper prints it for a duration of 2W and singleton tuples: 2W [2 Tj λa λb W + 2 Ts (λa + λb)].
    """
    arrivals = (left.rate + right.rate) * duration
    return Work(join_output_rate(left, right, 1.0) * duration, inserts=arrivals, purges=arrivals)


def old_box_work(tree: JoinTree, workload: Workload, duration: float, purge: Purge = Purge.EARLIEST) -> Work:
    """All joins of a box in steady state: the old box during a migration, or any box without one.

    Equation 5 ignores that the root of an old box in parallel track skips pairs of new tuples: under
    ``Purge.EARLIEST`` one k-th of its comparisons in the first W (k streams), and all of them after that.
    """
    total = Work()
    for left, right in joins(tree):
        total += steady_join_work(flow(left, workload, purge), flow(right, workload, purge), duration)
    return total


def new_box_work(tree: JoinTree, workload: Workload, duration: float) -> Work:
    """All joins of a box that starts empty (Zhu et al. 2004, equation 6, derived again).

    Until W nothing is purged: a box that has run for t is one whose window is t. So by then each join has compared
    every pair of its states and inserted all they hold, exactly what recomputing would; from W on the box is steady.
    For one join B ⋈ C and 2W that is

        Ts (λb + λc) W + Tj (λc ∫ λb t dt + λb ∫ λc t dt)  =  Ts (λb + λc) W + Tj λb λc W²      in the first W,
        W [2 Tj λb λc W + 2 Ts (λb + λc)]                                                        in the second.

    Printed, equation 6 has λa and λb where λb and λc are meant, and multiplies the integrals, which count comparisons
    already, by W once more: time³ where time² belongs. Above other joins "steady from W on" needs ``Purge.EARLIEST``,
    which is assumed here; under ``Purge.LATEST`` each level takes another W (for one join the rules are the same).
    """
    filling = min(duration, workload.window)
    filled = replace(workload, window=filling)
    total = Work()
    for left, right in joins(tree):
        sizes = flow(left, filled).size, flow(right, filled).size
        total += Work(comparisons=math.prod(sizes), inserts=sum(sizes))
        total += steady_join_work(flow(left, workload), flow(right, workload), duration - filling)
    return total


def new_box_output_rate(tree: JoinTree, workload: Workload, time: float) -> float:
    """Results per unit of time of a box that started empty ``time`` ago (Zhu et al. 2004, equation 7, derived again).

    For one join B ⋈ C it is 2 λb λc σ t until W and 2 λb λc σ W from then on. Printed, equation 7 integrates the first
    part, ∫ 2 λb λc σ t dt = λb λc σ t²: that is the number of results so far (``new_box_results``), not a rate, and it
    does not meet the second part at W.
    """
    return flow(_streams(tree), replace(workload, window=min(time, workload.window))).rate


def new_box_results(tree: JoinTree, workload: Workload, duration: float) -> float:
    """Results so far of a box that started empty: what parallel track buffers until the old box is gone."""
    filling = min(duration, workload.window)
    while_filling = flow(_streams(tree), replace(workload, window=filling)).size
    return while_filling + (duration - filling) * flow(_streams(tree), workload).rate


def side_by_side_work(old: JoinTree, new: JoinTree, workload: Workload, duration: float) -> Work:
    """Both boxes during a migration by parallel track or GenMig: the old one steady, the new one filling."""
    return old_box_work(old, workload, duration) + new_box_work(new, workload, duration)


def _streams(tree: JoinTree) -> Streams:
    return frozenset([tree]) if isinstance(tree, str) else frozenset().union(*joins(tree)[-1])


# Just-in-time state completion: what is left to complete after a swap


def swap_probability(n: int, lower: int, upper: int) -> float:
    """How likely the streams at two positions of a left-deep tree of n joins are those swapped (JISC, section 5.2).

    Positions are 1 … n from the bottom; both streams of the lowest join have position 1. The probability is αn over the
    distance, with αn = 1 / (n Hn − n), because near positions are swapped more often. (The paper calls it triangular.)
    """
    assert 1 <= lower < upper <= n
    return 1 / ((upper - lower) * n * (_harmonic(n) - 1))


def expected_complete_states(n: int) -> float:
    """E[Cn], the expected number of joins whose state is complete after a swap (JISC, proposition 1).

    A swap of positions i < j leaves the j − i states from i to j − 1 incomplete, so Cn = n − (J − I).

    >>> round(expected_complete_states(10), 2)
    7.67
    """
    assert n > 1, "one join has nothing to swap"
    return n - (n - 1) / (2 * (_harmonic(n) - 1))


def variance_of_complete_states(n: int) -> float:
    """Var[Cn] (JISC, proposition 1): (2 n² Hn − 5 n² + 6 n − 2 Hn − 1) / (12 (Hn − 1)²), written as two terms."""
    assert n > 1, "one join has nothing to swap"
    above = _harmonic(n) - 1
    return (n**2 - 1) / (6 * above) - ((n - 1) / (2 * above)) ** 2


def asymptotic_complete_states(n: int) -> float:
    """n − n / (2 ln n) (JISC, proposition 2).

    The error is (1 − γ)/2 · n / ln² n to first order, not O(1 / ln n) as printed: convergence is slow.
    """
    return n - n / (2 * math.log(n))


def asymptotic_variance_of_complete_states(n: int) -> float:
    """n² / (6 ln n), with an error in O(n² / ln² n) (JISC, proposition 2)."""
    return n**2 / (6 * math.log(n))


def deviation_bound(n: int, epsilon: float) -> float:
    """An upper bound for P(|Cn / E[Cn] − 1| > ε), by Chebyshev's inequality (JISC, proposition 3).

    It goes to 0, but only like 1 / ln n: that almost all states stay complete is no promise for plans of real size.
    """
    return min(1.0, variance_of_complete_states(n) / (epsilon * expected_complete_states(n)) ** 2)


_EULER_GAMMA = 0.5772156649015329
_SUMMED_UP_TO = 10_000


def _harmonic(n: int) -> float:
    if n <= _SUMMED_UP_TO:
        return math.fsum(1 / r for r in range(1, n + 1))
    # The next term of the expansion, 1 / (120 n⁴), is below a float's precision here.
    return math.log(n) + _EULER_GAMMA + 1 / (2 * n) - 1 / (12 * n**2)
