"""An alarm from three sensors per room: dry, hot and bright within one minute. In this process, without Spark.

Look at the pairs that the lower join produces. By day the lights are on in every room, and the plan that joins the
light last is good. At night they are off, and the plan that joins the light first has almost no intermediate rows. The
plan is changed at dusk; the alarms are the same as in a run that never changes its plan.
"""

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream

ROOMS, DUSK, END = 200, 10, 20  # minutes
schema = pa.schema({"ts": pa.int64(), "room": pa.int64(), "value": pa.float64()})
query = ContinuousQuery(
    """SELECT h.room, h.value AS humidity, l.value AS lux, t.value AS celsius
       FROM humidity [RANGE 60] h, light [RANGE 60] l, temperature [RANGE 60] t
       WHERE h.room = l.room AND l.room = t.room AND h.value < 30 AND l.value > 500 AND t.value > 22""",
    streams=[Stream(name, schema, event_time="ts") for name in ("humidity", "light", "temperature")],
)


def readings(minute: int) -> dict[str, pa.Table]:
    """A reading of every sensor. At night one light is on."""
    random = np.random.default_rng(minute)
    lux = random.uniform(600, 900, ROOMS) if minute < DUSK else np.where(np.arange(ROOMS) == 42, 700.0, 5.0)
    values = {"humidity": random.uniform(10, 60, ROOMS), "light": lux, "temperature": random.uniform(18, 26, ROOMS)}
    seconds = minute * 60 + np.sort(random.integers(0, 60, ROOMS))
    return {
        name: pa.table({"ts": seconds, "room": np.arange(ROOMS), "value": value.round(1)})
        for name, value in values.items()
    }


def pairs(run) -> int:
    """What the lower join has made since its plan began."""
    return next(o["rows_out"] for o in run.metrics()["operators"] if o["kind"] == "join")


run, unchanged = query.run_locally("(h t) l"), query.run_locally("(h t) l")
alarms, expected, by_day = [], [], 0
for minute in range(END):
    if minute == DUSK:
        by_day = pairs(run)
        run.migrate("(l t) h")
    tables = readings(minute)
    alarms += run.push(tables).to_pylist()
    expected += unchanged.push(tables).to_pylist()

print(f"by day,   (h t) l: {by_day:4} pairs of a dry and a hot reading")
print(f"at night, (l t) h: {pairs(run):4} pairs of a bright and a hot reading")
print(f"at night, (h t) l: {pairs(unchanged) - by_day:4} pairs, had the plan not been changed")
print(f"the last alarm: {alarms[-1]}")
print(f"{len(alarms)} alarms; the same without the change: {sorted(map(str, alarms)) == sorted(map(str, expected))}")
