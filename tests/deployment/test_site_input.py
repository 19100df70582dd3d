"""Files that anybody may put into a feed or an inbox: what says nothing is left out, and the rest is taken."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.algebra.window_spec import NEVER
from midstream.deployment.sites.message_file import CONTROL, ENVELOPE, NETWORK
from midstream.deployment.sites.site_input import FEED, InputRow, group_input


def rows():
    sink = io.BytesIO()
    pq.write_table(pa.table({"ts": [1]}), sink)
    return sink.getvalue()


GOOD = InputRow("file:/run/sites/s/feeds/edge~201/doors/1.parquet", 0, FEED, "", rows())


@pytest.mark.parametrize(
    "row",
    [
        GOOD._replace(origin="file:/run/sites/s/feeds/~ff/doors/2.parquet"),
        GOOD._replace(origin="file:/run/sites/s/feeds/edge~201/~ff/2.parquet"),
        GOOD._replace(origin="file:/run/sites/s/feeds/~ff/doors/end"),
        GOOD._replace(origin="2.parquet"),
        GOOD._replace(blob=b""),
        GOOD._replace(blob=rows()[:-20]),
        GOOD._replace(blob=rows()[:20] + bytes(40) + rows()[60:]),
        *(
            InputRow("file:/m.parquet", 0, kind, "a", blob)
            for kind in (CONTROL, ENVELOPE, NETWORK, "")
            for blob in (b"", b"x" * 99)
        ),
    ],
)
def test_a_row_that_says_nothing_is_left_out(row):
    given = group_input([row, GOOD])
    ((node, arrival),) = given.arrivals
    assert (node, arrival.stream, arrival.table.to_pydict()) == ("edge 1", "doors", {"ts": [1]})
    assert not given.control and not given.envelopes and given.connectivity is None


def test_the_end_of_a_feed_is_a_file_of_that_name():
    ((node, arrival),) = group_input([GOOD._replace(origin="file:/run/sites/s/feeds/a/b/end", blob=b"")]).arrivals
    assert (node, arrival.stream, arrival.table) == ("a", "b", None) and arrival.at_least == NEVER
