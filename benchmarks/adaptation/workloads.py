"""Streams whose best join order changes: by steps, slowly, in bursts, in turns; skewed, correlated, NEXMark, real data.

A workload is a query and the tables of each push. In the made-up ones, event time is one tick per row and stream, and a
window is ten pushes long. What changes is how many different values a join's key has: few values, many pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.flights import batches, flights
from midstream import ContinuousQuery, Stream

__all__ = ["WINDOW_PUSHES", "Adversary", "Workload", "steady", "workloads"]

ROWS = 8_000
"""Ticks of a push, and rows of each stream in it unless keys are skewed: see :func:`_skewed`."""
WINDOW_PUSHES = 10
FEW, FEWER_PAIRS, MEDIUM, MANY = 1_600, 8_000, 80_000, 1_600_000
"""Values of a key whose join makes 50 pairs per row, 10 pairs, one, and a pair for every 20th row."""

Tables = dict[str, pa.Table]
Values = Callable[[int], dict[str, int]]
"""How many values each key has in a push."""


@dataclass(frozen=True)
class Workload:
    """A query, its streams push by push, and where phases begin (the best plan may be another in each)."""

    name: str
    kind: str
    """``steps``, ``drift`` or ``alternating``, each with bars of its own, or ``other``."""
    query: ContinuousQuery
    pushes: int
    tables: Callable[[int], Iterator[Tables]]
    """The tables of all pushes, by seed."""
    phases: tuple[int, ...] = (0,)
    """The first push of each phase."""


def keyed_tables(
    query: ContinuousQuery,
    pushes: int,
    values: Values,
    skew: float = 0.0,
    correlated: bool = False,
    rows: int = ROWS,
) -> Callable[[int], Iterator[Tables]]:
    """Rows whose keys have so many values, by Zipf's law with this exponent (0: all are equally frequent).

    If they are ``correlated``, the keys of a row are functions of each other, so conditions are not independent.
    """

    def tables(seed: int) -> Iterator[Tables]:
        generator = np.random.default_rng(seed)
        for push in range(pushes):
            yield keyed_rows(query, push, values(push), generator, skew, correlated, rows)

    return tables


def keyed_rows(
    query: ContinuousQuery,
    push: int,
    values: dict[str, int],
    generator: np.random.Generator,
    skew: float = 0.0,
    correlated: bool = False,
    rows: int = ROWS,
) -> Tables:
    """The tables of one push."""
    times = push * ROWS + np.arange(rows) * ROWS // rows
    made = {}
    for stream in query.streams:
        base = generator.random(rows)
        keys = {
            column: _drawn(base if correlated else generator.random(rows), values[column], skew)
            for column in stream.schema.names[1:]
        }
        made[stream.name] = pa.table({"t": times, **keys})
    return made


def _drawn(uniform: np.ndarray, values: int, skew: float) -> np.ndarray:
    """Keys from 0 on: equally frequent, or by Zipf's law (the continuous approximation)."""
    if skew == 0:
        return np.asarray(uniform * values, np.int64)
    if skew == 1:
        return np.asarray(np.exp(uniform * np.log(values + 1)) - 1, np.int64)
    power = 1 - skew
    return (((uniform * ((values + 1) ** power - 1)) + 1) ** (1 / power) - 1).astype(np.int64)


def chain(names: str) -> ContinuousQuery:
    """a.k1 = b.k1 AND b.k2 = c.k2 …"""
    columns = {
        name: [f"k{place}" for place in (index, index + 1) if 0 < place < len(names)]
        for index, name in enumerate(names)
    }
    conditions = [f"{names[i - 1]}.k{i} = {names[i]}.k{i}" for i in range(1, len(names))]
    return _query(columns, conditions)


def star(names: str) -> ContinuousQuery:
    """The first stream has a key for each of the others."""
    columns = {names[0]: [f"k{i}" for i in range(1, len(names))]}
    columns |= {name: [f"k{i}"] for i, name in enumerate(names) if i}
    return _query(columns, [f"{names[0]}.k{i} = {names[i]}.k{i}" for i in range(1, len(names))])


def _query(columns: dict[str, list[str]], conditions: list[str]) -> ContinuousQuery:
    streams = [Stream(name, pa.schema([(c, pa.int64()) for c in ("t", *own)]), "t") for name, own in columns.items()]
    windows = ", ".join(f"{name} [RANGE {ROWS * WINDOW_PUSHES}]" for name in columns)
    first = next(iter(columns))
    return ContinuousQuery(f"SELECT {first}.t AS t FROM {windows} WHERE {' AND '.join(conditions)}", streams)


def workloads() -> list[Workload]:
    """All of them."""
    found = [_steps("steps", chain("abcd"), 3), _steps("steps, star of 4", star("abcd"), 3)]
    found += [_steps(f"steps, chain of {count}", chain("abcdefgh"[:count]), count - 1, phases=3) for count in (3, 5, 8)]
    found.append(_larger_pushes())
    found += [_drift(), _bursts()]
    found += [_turns(pushes) for pushes in (1, 2, 5, 20, 100)]
    found.append(_three_in_turn())
    found += [_skewed(skew, rows) for skew, rows in ((0.5, ROWS), (1.0, 500), (1.5, 100))]
    found.append(_steps("steps, correlated keys", chain("abcd"), 3, phases=3, correlated=True))
    found += [_nexmark(), _flights()]
    return found


def steady(pushes: int) -> Workload:
    """The first phase of the steps, for ever."""
    query = chain("abcd")
    values = _step_values(3, pushes, FEW)
    return Workload("nothing changes", "other", query, pushes, keyed_tables(query, pushes, values))


def _step_values(keys: int, length: int, few: int, many: int = MANY) -> Values:
    def values(push: int) -> dict[str, int]:
        many_pairs = push // length % keys + 1
        return {f"k{i}": few if i == many_pairs else many for i in range(1, keys + 1)}

    return values


def _steps(
    name: str,
    query: ContinuousQuery,
    keys: int,
    phases: int = 4,
    windows: int = 5,
    skew: float = 0.0,
    correlated: bool = False,
    few: int = FEW,
    many: int = MANY,
    rows: int = ROWS,
) -> Workload:
    """In each phase another join makes many pairs."""
    length = windows * WINDOW_PUSHES
    kind = "other" if skew or correlated else "steps"
    tables = keyed_tables(query, phases * length, _step_values(keys, length, few, many), skew, correlated, rows)
    return Workload(name, kind, query, phases * length, tables, tuple(length * phase for phase in range(phases)))


def _larger_pushes() -> Workload:
    """The steps of a chain of 3 with as many pairs per row, but more rows in each push.

    A measurement takes about the same time for pushes of any size, so this tells what of the regret is due to it.
    """
    times = 5
    name = f"steps, chain of 3, {times * ROWS:,} rows per push"
    return _steps(name, chain("abc"), 2, phases=3, few=times * FEW, many=times * MANY, rows=times * ROWS)


def _skewed(skew: float, rows: int) -> Workload:
    """Steps with keys by Zipf's law, the same ones frequent in all streams.

    Results of the most frequent key grow with the third power of its rows: with the exponent 1.5 it has a third of
    them, so that 8,000 in a push would make hundreds of millions. There are fewer rows then, in windows of the same
    length.
    """
    return _steps(f"steps, Zipf {skew:g}", chain("abc"), 2, phases=2, skew=skew, few=MEDIUM, rows=rows)


def _drift() -> Workload:
    """Over ten windows, one join's pairs become as many as another's were, and the other way round."""
    query, pushes = chain("abcd"), 20 * WINDOW_PUSHES

    def values(push: int) -> dict[str, int]:
        way = min(1.0, max(0.0, (push / WINDOW_PUSHES - 5) / 10))
        between = [int(FEW * (MANY / FEW) ** share) for share in (way, 1 - way)]
        return {"k1": between[0], "k2": MEDIUM, "k3": between[1]}

    phases = tuple(WINDOW_PUSHES * start for start in (0, 5, 8, 10, 12, 15))
    return Workload("drift", "drift", query, pushes, keyed_tables(query, pushes, values), phases)


def _bursts() -> Workload:
    """Every fourth window, for a tenth of it, the join that is good otherwise makes many pairs."""
    query, pushes = chain("abcd"), 20 * WINDOW_PUSHES

    def values(push: int) -> dict[str, int]:
        is_burst = push % (4 * WINDOW_PUSHES) == 2 * WINDOW_PUSHES
        return {"k1": FEW, "k2": MEDIUM, "k3": FEW if is_burst else MANY}

    return Workload("bursts", "other", query, pushes, keyed_tables(query, pushes, values))


def _ends(turn: int) -> dict[str, int]:
    """The two ends of a chain of four take turns in being the bad one.

    Windows have rows of both kinds, so that pairs of both ends multiply: with 50 at either end there would be hundreds
    of results per row, which take the same time in every plan.
    """
    ends = (FEWER_PAIRS, MANY) if turn % 2 == 0 else (MANY, FEWER_PAIRS)
    return {"k1": ends[0], "k2": MEDIUM, "k3": ends[1]}


def _turns(period: int) -> Workload:
    query, pushes = chain("abcd"), max(4 * period, 20 * WINDOW_PUSHES)
    name = f"alternating, every {period / WINDOW_PUSHES:g} windows"
    tables = keyed_tables(query, pushes, lambda push: _ends(push // period))
    return Workload(name, "alternating", query, pushes, tables, tuple(range(0, pushes, period)))


def _three_in_turn() -> Workload:
    """With every push another join of three makes many pairs, so that each push has another best plan."""
    query, pushes = chain("abcd"), 20 * WINDOW_PUSHES
    tables = keyed_tables(query, pushes, _step_values(3, 1, FEW))
    return Workload("alternating, three joins in turn", "alternating", query, pushes, tables, tuple(range(pushes)))


class Adversary:
    """Lets the other end of a chain be the bad one as soon as the plan has been changed, and remembers when."""

    def __init__(self, pushes: int = 20 * WINDOW_PUSHES) -> None:
        self.query = chain("abcd")
        self._pushes = pushes
        self._turns: list[int] = []

    def tables(self, seed: int, changes: Callable[[], int]) -> Iterator[Tables]:
        """The tables against a run that has changed its plan so often."""
        generator = np.random.default_rng(seed)
        for push in range(self._pushes):
            self._turns.append(changes())
            yield keyed_rows(self.query, push, _ends(self._turns[-1]), generator)

    def workload(self) -> Workload:
        """The same rows once more, for other plans."""
        turns = self._turns
        phases = tuple(push for push, turn in enumerate(turns) if push == 0 or turn != turns[push - 1])
        tables = keyed_tables(self.query, len(turns), lambda push: _ends(turns[push]))
        return Workload("alternating, by an adversary", "alternating", self.query, len(turns), tables, phases)


def _nexmark() -> Workload:
    """Query 23 of NEXMark: bids with the person who made them and an auction of that person's.

    Of 50 events one is a new person, three are auctions and 46 are bids. Three of four auctions and bids are of the hot
    seller or bidder, one of the last hundred persons; the others are of one of the last thousand.
    """
    per_push, pushes = 20_000, 10 * WINDOW_PUSHES
    streams = {"person": ["id"], "auction": ["id", "seller"], "bid": ["auction", "bidder"]}
    query = ContinuousQuery(
        f"""SELECT b.auction, b.bidder, a.id AS own FROM
            bid [RANGE {per_push * WINDOW_PUSHES}] b, person [RANGE {per_push * WINDOW_PUSHES}] p,
            auction [RANGE {per_push * WINDOW_PUSHES}] a WHERE p.id = b.bidder AND a.seller = b.bidder""",
        [Stream(name, pa.schema([(c, pa.int64()) for c in ("t", *own)]), "t") for name, own in streams.items()],
    )

    def tables(seed: int) -> Iterator[Tables]:
        generator = np.random.default_rng(seed)
        for push in range(pushes):
            times = np.arange(push * per_push, (push + 1) * per_push)
            place, person = times % 50, times // 50
            is_hot = generator.random(per_push) < 0.75
            active = np.maximum(0, person - generator.integers(0, 1_000, per_push))
            seller = np.where(is_hot, person // 100 * 100, active)
            bidder = np.where(is_hot, person // 100 * 100 + 1, active)
            persons, auctions, bids = place == 0, (place > 0) & (place < 4), place >= 4
            item = generator.integers(0, 1 + 3 * person)
            yield {
                "person": pa.table({"t": times[persons], "id": person[persons]}),
                "auction": pa.table({"t": times[auctions], "id": times[auctions], "seller": seller[auctions]}),
                "bid": pa.table({"t": times[bids], "auction": item[bids], "bidder": bidder[bids]}),
            }

    return Workload("NEXMark, query 23", "other", query, pushes, tables)


def _flights() -> Workload:
    """Real rows: departures from two airports of New York to a destination of a flight from the third that was late.

    Windows of two days, a push per day. How many flights are late depends on the weather.
    """
    names = ("newark", "laguardia", "delayed")
    schema = pa.schema({"ts": pa.int64(), "dest": pa.string(), "flight": pa.int64()})
    query = ContinuousQuery(
        """SELECT e.dest, e.flight AS newark, l.flight AS laguardia, x.flight AS kennedy FROM
           newark [RANGE 2880] e, laguardia [RANGE 2880] l, delayed [RANGE 2880] x
           WHERE e.dest = l.dest AND l.dest = x.dest""",
        [Stream(name, schema, "ts") for name in names],
    )

    def tables(seed: int) -> Iterator[Tables]:
        yield from batches(flights(), list(names), days=1)

    return Workload("flights from New York in 2013", "other", query, 365, tables)
