"""Faults put into the deployment on purpose: random deployment cases, or a directed test, must find each of them.

As ``tests/property/breakages.py`` does for migrations: each breakage replaces one piece of text of the source, in a
copy; then random cases are played until one fails. Some faults cost time only, because whatever is lost is asked for
again: those name the test that finds them.

    python -m tests.deployment.breakages            all of them, with the number of the case that found each
    python -m tests.deployment.breakages marker     those whose file or name contains the word

Exit code 1 if one survives.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.property.breakages import ROOT, Breakage, keep_compiled, sources

CASES = 1000
"""A breakage that survives as many has not been found."""
SEED = "breakages"

NODE, COORDINATOR, EDGE = (
    "deployment/protocol/node_runtime.py",
    "deployment/protocol/coordinator.py",
    "deployment/protocol/logical_edge.py",
)
GENERATION = "deployment/protocol/generation.py"
INSTANCE, STORAGE, SIMULATION = (
    "deployment/protocol/stage_instance.py",
    "deployment/protocol/node_storage.py",
    "deployment/simulation.py",
)


@dataclass(frozen=True)
class DeploymentBreakage(Breakage):
    """A fault, found by random cases unless a test is named."""

    cases: str = "deployments"
    test: str | None = None


_B = DeploymentBreakage
BREAKAGES = (
    # What moves with a stage
    _B(
        "an empty state is moved", NODE,
        "instance = self.instances.restored(context.plan, files())",
        "instance = self.instances.restored(context.plan, files())\n"
        "            instance.cell = None if context.plan.plan is None else type(instance.cell)(context.plan.plan)",
    ),
    _B(
        "cursors are not moved", INSTANCE,
        "end.generation, end.next_number, end.frontier = known.generation, known.next_number, known.frontier",
        "end.generation, end.frontier = known.generation, known.frontier",
    ),
    _B(
        "the frontier of an input is not moved", INSTANCE,
        "end.generation, end.next_number, end.frontier = known.generation, known.next_number, known.frontier",
        "end.generation, end.next_number = known.generation, known.next_number",
    ),
    _B(
        "the outbox is not moved", INSTANCE,
        "output.next_number, output.first_number = edges.next_number, edges.first_number",
        "output.next_number, output.first_number = edges.next_number, edges.first_number\n"
        "            edges = msgspec.structs.replace(edges, first_number=edges.next_number)",
    ),
    _B(
        "the numbers of messages begin anew", INSTANCE,
        "output.next_number, output.first_number = edges.next_number, edges.first_number",
        "output.next_number, output.first_number = edges.next_number - edges.first_number, 0",
    ),
    _B(
        "a stage that moves does not get its new route", NODE,
        "instance.output.set_route(context.route, awaiting.generation)", "pass",
    ),
    _B(
        "chunks are taken in any order", NODE,
        "if chunk.number == len(awaiting.chunks):", "if len(awaiting.chunks) < chunk.count:",
        test="tests/deployment/test_node_runtime.py",
    ),
    _B(
        "the snapshot of a held stage shrinks", NODE,
        "keeps=edge not in self.running", "keeps=False",
        test="tests/deployment/test_node_storage.py",
    ),
    # Edges
    _B(
        "messages are discarded when they are sent", EDGE,
        "                yield self.first_number + place, self.messages[place]\n"
        "            self.next_to_send = self.next_number",
        "                yield self.first_number + place, self.messages[place]\n"
        "            self.messages.clear()\n"
        "            self.first_number = self.next_to_send = self.next_number",
    ),
    _B(
        "messages are confirmed when they have come", NODE,
        "Cursor(edge, end.generation, end.next_number, end.answers_connect)",
        "Cursor(edge, end.generation, max([end.next_number - 1, *end.waiting]) + 1, end.answers_connect)",
    ),
    _B(
        "a repeated message is taken again", EDGE,
        "        if number >= self.next_number:\n            self.waiting[number] = content",
        "        if True:\n            self.waiting[max(number, self.next_number)] = content",
    ),
    _B(
        "the fence is ignored for connections", EDGE,
        "        if generation < self.generation:\n            return\n        self.generation, self.way_back",
        "        self.generation, self.way_back",
        test="tests/deployment/test_logical_edge.py",
    ),
    _B(
        "the fence is ignored for messages", EDGE,
        "        if generation < self.generation:\n            return\n        if number",
        "        if number",
        test="tests/deployment/test_logical_edge.py",
    ),
    _B(
        "a connection is never found broken", EDGE,
        "if (self.messages or not self.is_connected) and self.patience.is_over():", "if False:",
    ),
    _B(
        "a frontier may move back", EDGE,
        'assert content.frontier >= self.frontier, "I7: a frontier never moves back"', "pass",
        test="tests/deployment/test_logical_edge.py",
    ),
    # Nodes
    _B(
        "a stage goes on where it has ended", NODE,
        "                del self.running[stage]\n                self.held[stage]", "                self.held[stage]",
    ),
    _B(
        "a held stage goes on taking messages", NODE,
        "                consumer = self._consumer_of(edge)\n"
        "                if consumer is not None:\n"
        "                    consumer.inputs[edge].receive(generation, number, content)",
        "                consumer = self._consumer_of(edge)\n"
        "                for held in self.held.values():\n"
        "                    consumer = held.instance if edge in held.instance.inputs else consumer\n"
        "                if consumer is not None:\n"
        "                    consumer.inputs[edge].receive(generation, number, content)\n"
        "                    list(consumer.work() if consumer.stage.id in self.held else ())",
    ),
    _B(
        "the marker is not passed on", NODE,
        "            instance.output.append(marker)", "            pass",
        test="tests/deployment/test_isqd_figure_6.py",
    ),
    _B(
        "a late Prepare is not ignored", NODE,
        "        if generation < self.generations.get(query, 0):\n            return\n        if generation > self",
        "        if generation != self",
    ),
    _B(
        "a repeated Prepare is taken for a new one", NODE,
        "if generation > self.generations.get(query, 0):", "if generation >= self.generations.get(query, 0):",
    ),
    _B(
        "an Abort ends a stage that has begun", NODE,
        "        if self._runs_since(stage, generation):\n"
        "            self._report(Installed(self.name, query, generation, stage))\n"
        "            return",
        "        self.running.pop(stage, None)",
    ),
    _B(
        "an Abort does not keep a stage from beginning", NODE,
        "        if awaiting is not None and awaiting.generation == generation:\n            del self.awaiting[stage]",
        "        pass",
    ),
    _B(
        "a resumed stage is ended by a late marker", NODE,
        "                    self.contexts.get((query, generation), {}).pop(stage, None)\n"
        "                    self._report(Resumed",
        "                    self._report(Resumed",
        test="tests/deployment/test_node_runtime.py",
    ),
    _B(
        "a commit drops what other queries hold", NODE,
        "if _query_of(h) == query and h.generation <= generation", "if h.generation <= generation",
        test="tests/deployment/test_node_runtime.py",
    ),
    # Storage
    _B(
        "contexts are not stored", STORAGE,
        "for (query, generation), contexts in node.contexts.items()", "for (query, generation), contexts in ()",
    ),
    _B("held stages are not stored", STORAGE, "for stage, held in stored.held.items():", "for stage, held in ():"),
    # The coordinator
    _B(
        "a stage is resumed before its call back is confirmed", COORDINATOR,
        "target not in self.topology.nodes):\n                generation.called_back[stage] = target\n",
        "target not in self.topology.nodes):\n                generation.called_back[stage] = target\n"
        "                instructions.append((move.source, Resume(generation.query, generation.number, stage)))\n",
    ),
    _B(
        "the commit does not wait for stages to begin", COORDINATOR,
        "waits = generation.unacted or generation.uninstalled or generation.called_back or generation.resuming",
        "waits = generation.unacted",
    ),
    _B(
        "the marker enters before all are prepared", COORDINATOR,
        'if generation.phase == "prepare" and not generation.unprepared:', 'if generation.phase == "prepare":',
        test="tests/deployment/test_isqd_figure_6.py",
    ),
    _B(
        "a stage whose node is lost begins without its state", GENERATION,
        "awaits_state=stage in begun", "awaits_state=bool(state_paths.get(stage))",
    ),
    _B(
        "lost states are not rescued", COORDINATOR,
        "if stage in lost and stage not in generation.called_back", "if False",
    ),
    _B(
        "a lost node is told to abort", COORDINATOR,
        "        if self._is_there(node):\n            return [(node, Abort(query, generation, (stage,)))]",
        "        if True:\n            return [(node, Abort(query, generation, (stage,)))]",
    ),
    _B(
        "a stage begins again whose first node is lost", COORDINATOR,
        "if stage not in known.begun and target in lost:", "if False:",
        test="tests/deployment/test_lost_nodes.py",
    ),
    _B(
        "a generation is given up in which stages begin", GENERATION,
        "return not self.before.nodes or any(stage not in begun for stage in self.uninstalled)",
        "return False",
        test="tests/deployment/test_lost_nodes.py",
    ),
    _B(
        "a site answers that has not heard of a loss", "deployment/sites/connectivity.py",
        "return self.losses.get(node, 0) >= losses", "return True",
        test="tests/deployment/test_sites_without_spark.py",
    ),
    _B(
        "what a node stored before an earlier loss is forgotten", "deployment/protocol/lost_nodes.py",
        "    return {**kept, **stored}", "    return dict(stored)",
        test="tests/deployment/test_sites_without_spark.py",
    ),
    _B(
        "a query that waits for room is not tried again", COORDINATOR,
        "        waiting = self._waiting_for_room()\n", "        waiting: list[str] = []\n",
        test="tests/deployment/test_waiting_for_room.py",
    ),
    _B(
        "a stage that ran nowhere looks for its state on its new node", COORDINATOR,
        "stage: move.source or known.lost_with.get(stage) or generation.uninstalled[stage]",
        "stage: move.source or generation.uninstalled[stage]",
        test="tests/deployment/test_waiting_for_room.py",
    ),
    _B("lost nodes are waited for", COORDINATOR, "self._wait_no_longer_for(lost, generation)", "pass"),
    _B(
        "a stage that came back is thought to have moved", COORDINATOR,
        "actual = generation.reached", "actual = generation.after",
    ),
    _B(
        "what was given up is thought to have happened", COORDINATOR,
        "        self.given_up += 1\n        self.placement.put(generation.before)", "        self.given_up += 1",
    ),
    _B(
        "a state whose path is cut is not sent on another one", COORDINATOR,
        "instructions.append((move.source, RerouteState(stage, generation.number, found)))\n            elif",
        "found = generation.state_paths[stage] = path\n            elif",
    ),
    _B(
        "the end of the coordinator's log is lost", "deployment/protocol/coordinator_log.py",
        "        for line in self._file.read().splitlines():\n            _, entry",
        "        for line in self._file.read().splitlines()[:-1]:\n"
        "            _, entry",
    ),
    _B(
        "a compacted log forgets which stages have begun", "deployment/protocol/coordinator_snapshot.py",
        "known.begun, known.lost_with = set(query.begun), dict(query.lost_with)", "pass",
    ),
    _B(
        "a compacted log forgets generations", "deployment/protocol/coordinator_snapshot.py",
        "QueryState(by_stage, query.deployed, query.generation)", "QueryState(by_stage, query.deployed)",
    ),
    _B(
        "questions are asked without patience", "deployment/protocol/patience.py",
        "        if self.looks < self.limit:\n            return False\n", "",
        test="src/midstream/deployment/protocol/patience.py",
    ),
)  # fmt: skip


def found(tree: Path, breakage: DeploymentBreakage, seed: str, cases: int) -> dict[str, object]:
    """The number of the first random case that fails with the sources in the tree, or whether the test does."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    if breakage.test is not None:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", breakage.test]
        done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
        return {"case": breakage.test if done.returncode else None, "failure": "directed test"}
    command = [sys.executable, "-m", "tests.deployment.breakages", "--play", "--seed", seed, "--cases", str(cases)]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"case": 0, "failure": done.stderr.strip().rpartition("\n")[2]}
    return dict(json.loads(done.stdout.strip().rpartition("\n")[2]))


def play(seed: str, cases: int) -> None:
    """In the copy: print after how many cases the first one failed."""
    from midstream.testing.soak_deployment import deployment_trials

    gc.disable()
    number = 0
    for scenario in count():
        gc.collect()
        for trial in deployment_trials(f"{seed} {scenario}"):
            number += 1
            if trial.failure is not None:
                message = trial.failure.message.partition("\n")[0][:80]
                print(json.dumps({"case": number, "failure": f"{trial.failure.kind}: {message}"}))
                return
        if number >= cases:
            print(json.dumps({"case": None, "failure": None}))
            return


def main(words: list[str], seed: str, cases: int) -> int:
    chosen = [b for b in BREAKAGES if not words or any(word in f"{b.file} {b.name}" for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, tree / part)
        shutil.copy(ROOT / "pyproject.toml", tree)
        keep_compiled(tree)
        for breakage in chosen:
            path = tree / "src" / "midstream" / breakage.file
            right = path.read_text()
            path.write_text(sources(breakage))
            result = found(tree, breakage, seed, cases)
            path.write_text(right)
            survivors += result["case"] is None
            print(f"{result['case'] or 'SURVIVED'!s:>8}  {breakage.name} ({result['failure']})", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} found within {cases} cases")
    return 1 if survivors else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(given.seed, given.cases)
    else:
        sys.exit(main(given.words, given.seed, given.cases))
