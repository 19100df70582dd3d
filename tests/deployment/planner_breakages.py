"""Faults put into the planner of deployments on purpose: the tests named beside each must find it.

    python -m tests.deployment.planner_breakages             all of them, with the seconds that the tests took
    python -m tests.deployment.planner_breakages topology    those whose file, name or tests contain the word

Exit code 1 if one survives.
"""

from __future__ import annotations

import sys

from tests.runtime.breakages import fault, main

TOPOLOGY, EVENTS, PLACEMENT = (
    "deployment/topology/topology.py",
    "deployment/topology/topology_events.py",
    "deployment/placement/placement.py",
)
AMENDMENT, MOVING = "deployment/placement/placement_amendment.py", "deployment/placement/moving_stages.py"
STAGES, STRATEGY, SLOTS = (
    "deployment/placement/stage_placement.py",
    "deployment/placement/placement_strategy.py",
    "deployment/placement/free_slots.py",
)
INITIAL, FRAGMENTS = "deployment/placement/initial_placement.py", "deployment/placement/fragments.py"
CONTEXT, MARKER = "deployment/placement/deployment_context.py", "deployment/placement/reconfiguration_marker.py"
FILES, TRACES = "deployment/topology/topology_files.py", "deployment/topology/published_traces.py"

RANDOM = "tests/deployment/test_placement_amendment_random.py"
ANY_BATCHES = f"{RANDOM}::test_any_batches_lead_to_a_valid_placement_that_changes_no_more_than_it_must"
REFUSED = f"{RANDOM}::test_a_batch_that_is_refused_halfway_changes_nothing"
SAME = f"{RANDOM}::test_the_placement_does_not_depend_on_how_the_topology_came_about"
RECONSIDERED = f"{RANDOM}::test_a_placement_that_was_put_back_is_reconsidered"
CASES, CONTEXT_TESTS = "tests/deployment/test_placement_amendment.py", "tests/deployment/test_deployment_context.py"
TOPOLOGY_TESTS, FIGURES = "tests/deployment/test_topology.py", "tests/deployment/test_isqd_figures.py"

ALL = (
    # The topology
    fault(
        "a refused batch leaves what it dropped dropped", TOPOLOGY,
        "            self._undo.append(lambda: out_of.__setitem__(key, value))", "            pass",
        REFUSED,
    ),
    fault(
        "a refused batch leaves what it added", TOPOLOGY,
        "                self._undo.append(lambda: into.pop(key))", "                pass",
        REFUSED,
    ),
    fault(
        "changes are taken back in their own order", TOPOLOGY,
        "                self._undo.pop()()", "                self._undo.pop(mark)()",
        REFUSED,
    ),
    fault(
        "neighbours are visited as they came", TOPOLOGY,
        "return sorted({*self._parents.get(node, {}), *self._peers.get(node, {})})",
        "return list({**self._parents.get(node, {}), **self._peers.get(node, {})})",
        SAME,
    ),
    fault(
        "a cycle is not noticed", TOPOLOGY,
        "        if link.child in above:", "        if link.child == link.parent:",
        TOPOLOGY_TESTS,
    ),
    fault(
        "a lost node is only leaving", EVENTS,
        "topology.lose_node(lost)", "topology.remove_node(lost)",
        ANY_BATCHES,
    ),
    fault(
        "a node may return in the batch in which it leaves", EVENTS,
        "                    if node.id in gone:", "                    if False:",
        TOPOLOGY_TESTS,
    ),
    # Which edges are affected
    fault(
        "rows over a removed link are not looked at", AMENDMENT,
        "            case RemoveLink(child, parent):\n                add_link(child, parent)",
        "            case RemoveLink(child, parent):\n                pass",
        ANY_BATCHES,
    ),
    fault(
        "rows that only pass a removed node are not looked at", AMENDMENT,
        "                    add_link(node, other)", "                    pass",
        ANY_BATCHES,
    ),
    fault(
        "an edge that is cut off is never looked at again", AMENDMENT,
        "            case AddLink(link):\n"
        "                for place in (link.child, link.parent if link.is_peer else link.child, None):\n"
        "                    add(placement.waiting_at(place))",
        "            case AddLink(link):\n                pass",
        ANY_BATCHES,
    ),
    fault(
        "an edge waits for links of its own node only", AMENDMENT,
        "frozenset({*reached, *filter(None, homes)})", "frozenset({*list(reached)[:1], *filter(None, homes)})",
        ANY_BATCHES,
    ),
    fault(
        "an edge does not wait for a node to return", AMENDMENT,
        "frozenset({*reached, *filter(None, homes)})", "frozenset(reached)",
        ANY_BATCHES,
    ),
    fault(
        "an edge that waits for a state waits where it is", AMENDMENT,
        "None if edge in change.waiting_for_state else frozenset", "frozenset",
        ANY_BATCHES,
    ),
    fault(
        "a query to reconsider is not looked at", AMENDMENT,
        "affected.setdefault(query, set()).update(placement.of(query).routes)", "pass",
        RECONSIDERED,
    ),
    # Which stages move
    fault(
        "a stage moves although it can be reached", MOVING,
        "                if node is not None and node in reachable:",
        "                if node is not None and node in reachable and self._plan.stages[above].pinned_to:",
        ANY_BATCHES,
    ),
    fault(
        "a pinned stage is passed", MOVING,
        "                if self._plan.stages[above].pinned_to is not None:\n                    return None",
        "                if self._plan.consumer_of(above) is None:\n                    return None",
        ANY_BATCHES,
    ),
    fault(
        "the other producers of a moving stage are not asked", MOVING,
        "(edge in self._broken or self._plan.consumer_of(edge) in moving)", "edge in self._broken",
        CASES,
    ),
    fault(
        "a stage moves where its state cannot follow", MOVING,
        "return passed if self._states_can_follow(edge, passed) else None", "return passed",
        CASES,
    ),
    fault(
        "stages that moved for an edge that is cut off after all move nevertheless", MOVING,
        "restart = edge in counted_on", "restart = False",
        CASES,
    ),
    fault(
        "stages are asked from the sink downwards", MOVING,
        "for edge in self._stages:\n                    if edge in hopeless",
        "for edge in reversed(self._stages):\n                    if edge in hopeless",
        ANY_BATCHES,
    ),
    # Where they go
    fault(
        "slots are not counted", SLOTS,
        "        self._taken[node] += 1", "        pass",
        ANY_BATCHES,
    ),
    fault(
        "a stage that leaves keeps its slot", SLOTS,
        "        self._taken[node] -= 1", "        pass",
        CASES,
    ),
    fault(
        "a stage is placed where its consumer cannot be reached", STRATEGY,
        "if has_room(node) and (towards is None or topology.path(node, towards) is not None):", "if has_room(node):",
        ANY_BATCHES,
    ),
    fault(
        "inputs that are cut off have a say", STAGES,
        "return [node for node in placed if topology.path(node, towards) is not None]", "return placed",
        ANY_BATCHES,
    ),
    fault(
        "a route is kept although a link of it is gone", AMENDMENT,
        "if not is_between or (edge in examined and route is not None and not topology.is_route(route)):",
        "if not is_between:",
        ANY_BATCHES,
    ),
    fault(
        "the edges of a replaced placement stay listed", PLACEMENT,
        "            del index[key][stage]\n",
        "            index[key].pop(stage) if index is self._stages_on else None\n",
        ANY_BATCHES,
    ),
    fault(
        "a lost state is not reported", AMENDMENT,
        "                lost.append(stage)", "                pass",
        ANY_BATCHES,
    ),
    # What is deployed
    fault(
        "stages on one node are fragments of their own", FRAGMENTS,
        "if placement.nodes.get(producer) == node]", "if placement.nodes.get(producer) == node and False]",
        CONTEXT_TESTS,
    ),
    fault(
        "a fragment that is cut off forgets its route", CONTEXT,
        "if route is None and old.output == stages[-1]:", "if False:",
        CONTEXT_TESTS,
    ),
    fault(
        "a changed fragment keeps its version", CONTEXT,
        "fragment = replace(fragment, version=old.version + 1)", "fragment = replace(fragment, version=old.version)",
        FIGURES,
    ),
    fault(
        "a fragment is continued on another node", CONTEXT,
        "            if old.node == node:", "            if old.node:",
        FIGURES,
    ),
    fault(
        "state that changes its fragment on one node is not handed over", CONTEXT,
        "if stage in targets and targets[stage].id != source.id",
        "if stage in targets and targets[stage].node != source.node",
        CONTEXT_TESTS,
    ),
    fault(
        "a fragment with state is drained without handing it over", CONTEXT,
        "            if fragment.id in handing_over:", "            if False:",
        FIGURES,
    ),
    fault(
        "the marker is expected over links that are gone", MARKER,
        "        return topology.is_route(producer.route)", "        return True",
        FIGURES,
    ),
    fault(
        "lost nodes are told to undeploy", CONTEXT,
        "        if fragment.node in topology.nodes or fragment.node in topology.leaving\n", "",
        CONTEXT_TESTS,
    ),
    # Files
    fault(
        "neighbours below the cloud are a hierarchy", FILES,
        "if one < other and one in children.get(other, ())",
        "if one > other > one and one in children.get(other, ())",
        "tests/deployment/test_topology_files.py",
    ),
    fault(
        "the device that came last moves first", TRACES,
        "present[edge].popleft()", "present[edge].pop()",
        "tests/deployment/test_published_traces.py::test_the_generated_file_equals_the_published_one",
    ),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ALL))
