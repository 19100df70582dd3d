"""Random messages of every kind, for tests of their form as bytes."""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from midstream import ContinuousQuery, Stream
from midstream.deployment.placement.stage_plans import stage_plans
from midstream.deployment.protocol.messages import (
    Abort,
    Aborted,
    Acted,
    Commit,
    Committed,
    Connect,
    Cursor,
    Data,
    DeployStage,
    DrainStage,
    EnterMarker,
    Envelope,
    InspectLostNode,
    Installed,
    Marker,
    MigrateStage,
    Numbered,
    Prepare,
    Prepared,
    ProvideState,
    RerouteState,
    RescueState,
    Resume,
    Resumed,
    StageMigrated,
    StateChunk,
    StateCursor,
    UpdateStage,
)
from midstream.deployment.protocol.node_runtime import Arrival
from midstream.deployment.topology.topology import Link, Node
from midstream.deployment.topology.topology_events import AddLink, AddNode, LoseNode, RemoveLink, RemoveNode
from midstream.engine.state.window_store import ReceivedRows

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "v": pa.string()})
QUERY = ContinuousQuery(
    "SELECT a.k, a.v, COUNT(*) AS n FROM a [RANGE 10], b [RANGE 5] WHERE a.k = b.k AND b.v <> 'x' GROUP BY a.k, a.v",
    [Stream(name, SCHEMA, event_time="ts") for name in "ab"],
)
PLANS = stage_plans("q", QUERY.plan(), {"a": ["d1", "d2"], "b": ["d3"]}, "cloud")

names = st.text(min_size=1, max_size=6)
numbers = st.integers(0, 2**40)
times = st.integers(-(2**62), 2**62)
paths = st.lists(names, min_size=1, max_size=4).map(tuple)
whole = st.sampled_from(PLANS)


@st.composite
def rows(draw):
    spans = draw(st.lists(st.tuples(times, times), max_size=4))
    begins, ends = (np.array([span[i] for span in spans], np.int64) for i in range(2))
    texts = draw(st.lists(names | st.none(), min_size=len(spans), max_size=len(spans)))
    return ReceivedRows(begins, ends, [pa.array(texts, pa.string()), pa.array(begins)])


markers = st.builds(Marker, names, numbers, st.frozensets(names, max_size=3))
carried = st.one_of(
    st.builds(Connect, names, numbers),
    st.builds(Numbered, names, numbers, numbers, st.builds(Data, rows(), times) | markers),
    st.builds(Cursor, names, numbers, numbers, st.booleans()),
    st.builds(StateChunk, names, numbers, numbers, numbers, st.binary(max_size=20)),
    st.builds(StateCursor, names, numbers, numbers),
)


@st.composite
def envelopes(draw):
    path = draw(paths)
    return Envelope(path, draw(carried), draw(st.integers(0, len(path) - 1)))


contexts = st.one_of(
    st.builds(DeployStage, whole, paths, st.booleans()),
    st.builds(UpdateStage, names, paths),
    st.builds(DrainStage, names, paths | st.just(())),
)
control = st.one_of(
    st.builds(Prepare, names, numbers, st.lists(contexts, max_size=3).map(tuple)),
    st.builds(EnterMarker, markers, paths),
    st.builds(Commit, names, numbers),
    st.builds(Abort, names, numbers, paths),
    st.builds(Resume, names, numbers, names),
    st.builds(RerouteState, names, numbers, paths),
    st.builds(RescueState, names, numbers, names, numbers),
    st.builds(InspectLostNode, names, numbers, names, names, numbers),
    st.builds(ProvideState, names, numbers, st.dictionaries(names, st.binary(max_size=9), max_size=3)),
    st.builds(MigrateStage, names, names, numbers, st.just({"plan": [1, None]}), names, st.just({"share": 0.5})),
)
reports = st.one_of(
    *(st.builds(kind, names, names, numbers) for kind in (Prepared, Committed)),
    *(st.builds(kind, names, names, numbers, names) for kind in (Acted, Installed, Aborted, Resumed)),
    st.builds(StageMigrated, names, names, names, numbers, st.none() | names),
)
tables = st.lists(numbers, max_size=3).map(lambda values: pa.table({"ts": pa.array(values, pa.int64())}))
arrivals = st.builds(Arrival, names, st.none() | tables, st.none() | times)
nodes = st.builds(Node, names, st.none() | st.integers(0, 9), st.none() | names)
links = st.builds(Link, names, names, st.floats(0, 1e6), st.none() | st.floats(0.1, 1e6), st.booleans())
events = st.one_of(
    st.builds(AddNode, nodes),
    st.builds(RemoveNode, names),
    st.builds(LoseNode, names),
    st.builds(AddLink, links),
    st.builds(RemoveLink, names, names),
)
messages = st.one_of(envelopes(), control, reports, arrivals, events, whole)
