"""A bad join order that costs little, with just-in-time processing.

Clicks are joined with views, then with purchases, which are rare. Look at the pairs of clicks and views: without
just-in-time processing all of them are made, and hardly any is ever used. With it, clicks and views wait until a
purchase of their session arrives. The results are the same, and come in the same push.
"""

import numpy as np
import pyarrow as pa

from midstream import ContinuousQuery, Stream

schema = pa.schema({"ts": pa.int64(), "session": pa.int64()})
query = ContinuousQuery(
    """SELECT c.session, v.ts AS viewed, c.ts AS clicked, p.ts AS bought
       FROM views [RANGE 300] v, clicks [RANGE 300] c, purchases [RANGE 300] p
       WHERE v.session = c.session AND c.session = p.session""",
    streams=[Stream(name, schema, event_time="ts") for name in ("views", "clicks", "purchases")],
)


def rows(random: np.random.Generator, minute: int, count: int) -> pa.Table:
    """Rows of one minute; a session lasts about five."""
    times = np.sort(random.integers(60 * minute, 60 * (minute + 1), count))
    return pa.table({"ts": times, "session": times // 3 + random.integers(-50, 51, count)}, schema=schema)


def run(just_in_time: bool) -> list[tuple[int, int, int, int]]:
    """Half an hour of the shop; a purchase in every third minute. Prints what the operators did."""
    random = np.random.default_rng(1)
    live = query.run_locally("(v c) p", just_in_time=just_in_time)
    found = []
    for minute in range(30):
        counts = {"views": 1000, "clicks": 300, "purchases": 2 if minute % 3 == 0 else 0}
        table = live.push({name: rows(random, minute, count) for name, count in counts.items()})
        found += [tuple(row.values()) for row in table.to_pylist()]
    print(f"just-in-time processing {'on' if just_in_time else 'off'}: {len(found)} results")
    print(live.explain())
    return sorted(found)


assert run(just_in_time=False) == run(just_in_time=True)
