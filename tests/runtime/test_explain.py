"""The plan of a running query shows what each of its operators did; each operator says what it is."""

import pyarrow as pa

from midstream import ContinuousQuery, Stream

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
QUERY = ContinuousQuery(
    "SELECT j.k, COUNT(*) AS n FROM (SELECT DISTINCT a.k + b.k AS k FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k) j, "
    "c [RANGE 5] WHERE j.k = c.k AND j.k + c.k > 2 GROUP BY j.k EXCEPT ALL SELECT c.k, c.k AS n FROM c [RANGE 5]",
    [Stream(name, SCHEMA, "ts") for name in "abc"],
)


def fed(run):
    for now in (1, 2, 20):
        run.push({name: pa.table({"ts": [now], "k": [k]}, schema=SCHEMA) for name, k in (("a", 1), ("b", 1), ("c", 2))})
    return run


def test_every_operator_says_what_it_is():
    run = fed(QUERY.run_locally())
    kinds = {operator["kind"] for operator in run.metrics()["operators"]}
    nodes = {node.kind for node in run.plan.walk()}
    assert {"window", "join", "distinct", "aggregate", "difference", "project", "alias"} <= nodes
    # A selection directly above a window is applied before rows enter it.
    assert nodes - {"select"} <= kinds <= nodes | {"materialize"}
    assert "materialize" in kinds


def test_operators_of_just_in_time_processing_have_kinds_of_their_own():
    query = ContinuousQuery(
        "SELECT a.k FROM a [RANGE 5], b [RANGE 5], c [RANGE 5] WHERE a.k = b.k AND b.k = c.k",
        [Stream(name, SCHEMA, "ts") for name in "abc"],
    )
    run = fed(query.run_locally("(a b) c", just_in_time=True))
    assert {o["kind"] for o in run.metrics()["operators"]} == {"window", "join", "project", "suspend", "demand"}


def test_figures_stand_beside_the_operator_that_did_the_work():
    """A subplan may have other operators beside its own: a store of its rows, or a suspension of them."""
    run = fed(QUERY.run_locally())
    shown = run.explain().splitlines()
    figures = {operator["kind"]: operator for operator in run.metrics()["operators"]}
    (distinct,) = (line for line in shown if "Distinct" in line)
    assert f"Distinct; {figures['distinct']['rows_out']} rows" in distinct
    assert distinct.count("row") == 1
    assert all("row" in line for line in shown if "Select" not in line)
