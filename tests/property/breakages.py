"""Faults put into the code on purpose: random migration cases must find each of them.

Most concern progress and hand-over: how far results are final, what has been emitted, where a successor begins, how
long rows are kept for it. Others concern just-in-time processing: whose tuples wait, for whom, and when they are
resumed; or multi-way joins and STAIRs: what they keep, and what a migration makes of it. Each breakage replaces one
piece of text of the source, in a copy; then random cases are played until one fails.

    python -m tests.property.breakages            all of them, with the number of the case that found each
    python -m tests.property.breakages sweep      those whose cases, file or name contain the word

    python -m tests.property.breakages --seed b   with other random cases; --cases 5000: with more of them

Exit code 1 if one survives 2,000 cases.
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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CASES = 2000
"""A breakage that survives as many has not been found."""
SEED = "breakages"


@dataclass(frozen=True)
class Breakage:
    """A fault: the text it replaces stands in the file exactly once."""

    name: str
    file: str
    right: str
    wrong: str
    cases: str = "migrations"
    """Which random cases are played: "migrations", "just in time" or "executors"."""


FINAL, SWEEP, BOX = "engine/operators/final_operator.py", "engine/operators/sweep.py", "execution/plan_executor.py"
EMIT = (
    "for batch in self._segments(*inputs):\n            yield from self._counted(batch.from_instant(self.emits_from))"
)
MATCHING, GEN_MIG = "migration/state_matching.py", "migration/gen_mig.py"
PROGRESS, HANDLE = "execution/output_progress.py", "engine/operators/state_handle.py"

BREAKAGES = (
    # What a final operator has emitted
    Breakage(
        "a predecessor's end is forgotten", FINAL,
        "return max(self.emits_from, self._final_until)", "return self._final_until",
    ),
    Breakage(
        "final one tick too early", FINAL,
        "self._final_until = min(self.frontier, self.limit)", "self._final_until = min(self.frontier + 1, self.limit)",
    ),
    Breakage(
        "the limit is ignored", FINAL,
        "self._final_until = min(self.frontier, self.limit)", "self._final_until = self.frontier",
    ),
    Breakage(
        "open segments may begin later than they do", FINAL,
        "self.frontier = back_by(self._final_until, self._longest)", "self.frontier = self._final_until",
    ),
    Breakage(
        "rows are kept only until results are final", FINAL,
        "return back_by(min(retention, self._final_until), self._longest)",
        "return min(retention, self._final_until)",
    ),
    Breakage(
        "rows are kept only until they are not needed above", FINAL,
        "return back_by(min(retention, self._final_until), self._longest)", "return retention",
    ),
    Breakage(
        "what a predecessor emitted is emitted again", FINAL,
        EMIT,
        "for batch in self._segments(*inputs):\n            yield from self._counted(batch)",
    ),
    Breakage(
        "emission begins a tick too early", FINAL,
        EMIT,
        "for batch in self._segments(*inputs):\n"
        "            yield from self._counted(batch.from_instant(self.emits_from - 1))",
    ),
    Breakage(
        "emission begins a tick too late", FINAL,
        EMIT,
        "for batch in self._segments(*inputs):\n"
        "            yield from self._counted(batch.from_instant(self.emits_from + 1))",
    ),
    Breakage(
        "that open segments were emitted is forgotten", FINAL,
        "self.emits_from = self.emitted_until", "pass",
    ),
    Breakage(
        "open segments are emitted again from the beginning", FINAL,
        "for batch in self._output(self._sweep.open_segments(self._final_until)):\n"
        "            yield from self._counted(batch.from_instant(self.emits_from))",
        "for batch in self._output(self._sweep.open_segments(self._final_until)):\n"
        "            yield from self._counted(batch)",
    ),
    Breakage(
        "open segments are emitted up to a tick before the end", FINAL,
        "for batch in self._output(self._sweep.open_segments(self._final_until)):",
        "for batch in self._output(self._sweep.open_segments(self._final_until - 1)):",
    ),
    Breakage(
        "what was emitted of open segments is missing in the history", FINAL,
        "if self.emits_from > BEGINNING:", "if False:",
    ),
    Breakage(
        "the history has open segments as if they were emitted", FINAL,
        "self._sweep.open_segments(min(self.emits_from, self._final_until))",
        "self._sweep.open_segments(self._final_until)",
    ),
    # Where segments begin
    Breakage(
        "pieces of a distinct are boundaries", SWEEP,
        "if self._grid is None or len(times) == 0:", "if True:",
    ),
    Breakage(
        "segments are not cut at the grid", SWEEP,
        "inside = (points > valid_from) & (points < valid_to)", "inside = points < points",
    ),
    Breakage(
        "the grid is a tick off where pieces meet", SWEEP,
        "(times % self._grid == 0)", "(times % self._grid == 1)",
    ),
    Breakage(
        "an instant is passed before all its rows are there", SWEEP,
        "last = frontier if self._grid is None or frontier in (BEGINNING, NEVER) else frontier - 1", "last = frontier",
    ),
    Breakage(
        "rows go a tick too late", SWEEP,
        "gone_times, gone = self._going.pop_until(last)", "gone_times, gone = self._going.pop_until(last - 1)",
    ),
    Breakage(
        "segments open at the cut are left out", SWEEP,
        "return self._open(slots[self._since[slots] < until], until)",
        "return self._open(slots[self._since[slots] < until - 1], until)",
    ),
    Breakage(
        "a distinct is not known to give pieces", "algebra/plan.py",
        "return True\n        if isinstance(self, Aggregate | Difference):",
        "return False\n        if isinstance(self, Aggregate | Difference):",
    ),
    # A box
    Breakage(
        "only the first final operator counts", BOX,
        "self.final_operators = outermost_final_operators(root)",
        "self.final_operators = outermost_final_operators(root)[:1]",
    ),
    Breakage(
        "open segments are not emitted when a box is given up", BOX,
        "return [lasting(batch) for batch in outputs[id(self.root)]]", "return []",
    ),
    Breakage(
        "open segments of one final operator only are emitted", BOX,
        "{id(o): list(o.emit_open()) for o in self.final_operators}",
        "{id(o): list(o.emit_open()) for o in self.final_operators[-1:]}",
    ),
    Breakage(
        "where operators begin is not described", BOX,
        '"emits_from": [operator.emits_from for operator in self.final_operators],',
        '"emits_from": [BEGINNING for operator in self.final_operators],',
    ),
    Breakage(
        "rows that results still need are given up", BOX,
        "needed = {id(self.root): self.root.final_until}", "needed = {id(self.root): self.watermark + 3}",
    ),
    Breakage(
        "a hold has no effect before the next push", BOX,
        "operator.limit = until\n        self.advance(self.watermark)", "operator.limit = until",
    ),
    # Matching states
    Breakage(
        "all final operators are taken for the old plan's", MATCHING,
        "return len(self._predecessors) == len(old) == len(new)", "return True",
    ),
    Breakage(
        "the new plan begins where the furthest operator stands", PROGRESS,
        "*(operator.emitted_until for operator in self.final_operators)",
        "max((operator.emitted_until for operator in self.final_operators), default=NEVER)",
    ),
    Breakage(
        "the new plan begins at the windows' end", PROGRESS,
        "[NEVER, *(operator.emitted_until for operator in self.final_operators), *self.source_frontiers]",
        "[NEVER, *self.source_frontiers]",
    ),
    Breakage(
        "windows do not count for where the new plan begins", PROGRESS,
        "*(operator.emitted_until for operator in self.final_operators), *self.source_frontiers]",
        "*(operator.emitted_until for operator in self.final_operators)]",
    ),
    Breakage(
        "nothing is refused", MATCHING,
        "if ahead:", "if False:",
    ),
    Breakage(
        "predecessors do not count for where operators begin", MATCHING,
        "operator.emits_from = instant if predecessor is None else predecessor.emits_from",
        "operator.emits_from = instant",
    ),
    Breakage(
        "operators without predecessor begin a tick too late", MATCHING,
        "operator.emits_from = instant if predecessor is None else predecessor.emits_from",
        "operator.emits_from = instant + 1 if predecessor is None else predecessor.emits_from",
    ),
    Breakage(
        "operators without predecessor begin a tick too early", MATCHING,
        "operator.emits_from = instant if predecessor is None else predecessor.emits_from",
        "operator.emits_from = instant - 1 if predecessor is None else predecessor.emits_from",
    ),
    Breakage(
        "what a successor knows more is taken for emitted", MATCHING,
        "operator.limit = instant if predecessor is None else predecessor.final_until",
        "operator.limit = NEVER",
    ),
    Breakage(
        "what a successor knows more waits, and is lost by a rebuild", MATCHING,
        "        new.hold_final(NEVER)\n"
        "        results += [lasting(batch) for batch in new.push({}, context.watermark)]",
        "        new.hold_final(NEVER)",
    ),
    Breakage(
        "where a predecessor began is forgotten", MATCHING,
        "operator.emits_from = self._predecessors[id(operator)].emits_from", "pass",
    ),
    Breakage(
        "operators below do not count for whether operators are the same", MATCHING,
        "            and old.serves(new, NEVER)\n            and _has_the_same_below(new, old)\n",
        "            and old.serves(new, NEVER)\n",
    ),
    Breakage(
        "equal operators are matched wherever they stand", MATCHING,
        "return [there[0] if len(there) == 1 else None for there in found]",
        "return [next((o for o in old if o.state_key == n.state_key), None) for n in self.new.final_operators]",
    ),
    Breakage(
        "how far inputs are does not count", HANDLE,
        "(a.final_until, a.frontier) == (b.final_until, b.frontier) for",
        "True for",
    ),
    Breakage(
        "a rebuilt plan, or one in another order, goes further than it was allowed to", MATCHING,
        "        self.new.hold_final(old.final_limit)", "        pass",
    ),
    Breakage(
        "the history of a final operator is what it emits next", FINAL,
        "yield from self._segments(*histories)", "yield from self.push(*histories)",
    ),
    Breakage(
        "stores are continued though rows are missing in them", MATCHING,
        "            if not behind:\n", "            if True:\n",
    ),
    # GenMig
    Breakage(
        "the old plan goes up to the split", GEN_MIG,
        "self._old.hold_final(min(until, self._split_at - 1))", "self._old.hold_final(min(until, self._split_at))",
    ),
    Breakage(
        "the old plan goes beyond the split", GEN_MIG,
        "self._old.hold_final(min(until, self._split_at - 1))", "self._old.hold_final(until)",
    ),
    Breakage(
        "the new plan goes beyond the split", GEN_MIG,
        "self._new.hold_final(min(until, self._split_at))", "self._new.hold_final(until)",
    ),
    Breakage(
        "the new plan does not know where it begins", GEN_MIG,
        "self._new.skip_final(self._split_at)", "pass",
    ),
    Breakage(
        "the new plan begins a tick after the split", GEN_MIG,
        "self._new.skip_final(self._split_at)", "self._new.skip_final(self._split_at + 1)",
    ),
    Breakage(
        "the split is not beyond what the old plan has emitted", GEN_MIG,
        "max(split_at, windows.latest_end, context.watermark, ahead + 1)",
        "max(split_at, windows.latest_end, context.watermark)",
    ),
    Breakage(
        "the split is not beyond the old rows", GEN_MIG,
        "max(split_at, windows.latest_end, context.watermark, ahead + 1)", "max(context.watermark, ahead + 1)",
    ),
    Breakage(
        "the new plan tells what has been emitted", "migration/two_boxes.py",
        "return self._old.progress()", "return self._new.progress()",
    ),
    Breakage(
        "where operators begin is not read back", "migration/manifest.py",
        "            operator.emits_from = emits_from", "            pass",
    ),
    # Operators below and above
    Breakage(
        "a distinct forgets rows that may still come again", "engine/operators/distinct.py",
        "self._ended = self.inputs[0].frontier", "self._ended = self.inputs[0].frontier + 1",
    ),
    Breakage(
        "rows below a distinct are kept only for the output", "engine/operators/distinct.py",
        "return min(retention, self.frontier)", "return retention",
    ),
    Breakage(
        "a join is purged by the frontier of the same side", "engine/operators/join.py",
        "zip(self.sides, reversed(self.inputs), strict=True):\n            side.expire",
        "zip(self.sides, self.inputs, strict=True):\n            side.expire",
    ),
    Breakage(
        "rows below a join are kept only for the output", "engine/operators/join.py",
        "return min(retention, self.frontier)", "return retention",
    ),
    Breakage(
        "a window that slides is a step too far", "algebra/window_spec.py",
        "return min(NEVER, -(-watermark // self.slide) * self.slide)",
        "return min(NEVER, (watermark // self.slide + 1) * self.slide)",
    ),
)  # fmt: skip


DEMAND, SUSPEND = "engine/operators/demand.py", "engine/operators/suspend.py"
MULTI_JOIN, FILTER = "engine/operators/multi_join.py", "engine/operators/visit_filter.py"
KEYS, BLACKLIST = "engine/state/demanded_keys.py", "engine/state/blacklist.py"
JUST_IN_TIME = tuple(
    Breakage(*breakage, "just in time")
    for breakage in (
        ("keys of new tuples are not announced", DEMAND,
         "self.announced = np.concatenate(noted) if noted else _NONE", "pass"),
        ("keys of new tuples are announced and forgotten", DEMAND,
         "        self._demanded.add(codes, ends)\n        return codes", "        return codes"),
        ("whoever starts to ask is not told of the tuples held", DEMAND,
         "            for batch in self.consumer.tuples_held():\n                self._note(batch)", ""),
        ("whoever starts to ask is not told of the latest tuples", DEMAND,
         "return [*self.side.tuples_held(), *self._latest]", "return self.side.tuples_held()"),
        ("keys are forgotten a little early", DEMAND, "demand.expire(retention)", "demand.expire(retention + 3)"),
        ("tuples stay suspended", SUSPEND, "yield from self._resumed(consumer.resumed())", "yield from ()"),
        ("the frontier does not wait for suspended tuples", SUSPEND,
         "self.frontier = min([self.inputs[0].frontier, *(c.demand.consumer.frontier for c in self._consumers)])",
         "self.frontier = self.inputs[0].frontier"),
        ("what waited for a consumer that is not asked any more is lost", SUSPEND,
         "return self.batch_of(self.blacklist.take_all())",
         "self.blacklist.take_all()\n        return self.batch_of(self.blacklist.take_all())"),
        ("suspended tuples end with their own stream", SUSPEND,
         "consumer.blacklist.expire(consumer.demand.consumer.frontier)",
         "consumer.blacklist.expire(max(consumer.demand.consumer.frontier, self.inputs[0].frontier) + 2)"),
        ("what a rebuild suspends is resumed with its past", SUSPEND,
         "        self.expire(BEGINNING)\n", "        pass\n"),
        ("what is resumed is resumed with its past", BLACKLIST,
         "        np.maximum(tuples[:, FROM], self._frontier, out=tuples[:, FROM])\n", ""),
        ("a partner must end a tick later", KEYS,
         "found[i] = ends[_place(codes, ends, wanted[i])] > starts[i]",
         "found[i] = ends[_place(codes, ends, wanted[i])] > starts[i] + 1"),
        ("by Bloom filters a partner must end a tick later", KEYS,
         "table[place, _END] > starts[i]", "table[place, _END] > starts[i] + 1"),
        ("a filter is dropped a tick early", KEYS,
         "alive = self._table[:, _END] > frontier", "alive = self._table[:, _END] > frontier + 1"),
        ("only one tuple of a key is resumed", BLACKLIST,
         "                count += 1\n                following[slot] = _TAKEN",
         "                count += 1\n                step *= 0\n                following[slot] = _TAKEN"),
        ("a resumed tuple begins a tick too late", BLACKLIST,
         "np.maximum(tuples[:, FROM], self._frontier,", "np.maximum(tuples[:, FROM], self._frontier + 1,"),
        ("making room loses the tuples after the first", BLACKLIST,
         "columns[REFERENCES:], np.arange(alive))", "columns[REFERENCES:], np.arange(min(1, alive)))"),
        ("what a suspended tuple's chain had below it is lost", BLACKLIST,
         "following[slot] = end + i - before if before >= first else 0", "following[slot] = 0"),
        ("the waiting input is evaluated first", "engine/operators/join.py",
         "return self.inputs[:: -1 if self.consumer_input else 1]",
         "return self.inputs[:: 1 if self.consumer_input else -1]"),
        ("states that lack suspended tuples are adopted", "execution/compiler.py",
         "side.is_partial = bool(consumers) or place == waiting", "side.is_partial = False"),
        # Braces
        ("keys of new tuples are not noted before others visit", MULTI_JOIN, "self._filter.note(entered)", "pass"),
        ("a check that starts is not told of this push's tuples", FILTER,
         "return [*self._held(), *self._latest]", "return self._held()"),
        ("a check that starts is not told of tuples that are put off", MULTI_JOIN,
         "return self._visits.first_index(place).tuples_held()",
         "return self._visits.first_index(place).tuples_held()[:1]"),
        ("a partner must be valid when the tuple ends", FILTER,
         "contains(codes, tuples.valid_from)", "contains(codes, tuples.valid_to)"),
        ("keys of an input are forgotten a little early", FILTER,
         "demand.expire(frontier)", "demand.expire(frontier + 3)"),
        ("keys of an input are forgotten when its own stream is further", MULTI_JOIN,
         "self._filter.expire(place, others)", "self._filter.expire(place, self.inputs[place].frontier + 12)"),
        ("columns of a key are compared crosswise", FILTER,
         "codes = KeyCodes(self._layout, keys(visited))",
         "codes = KeyCodes(self._layout, keys(visited)[::-1])"),
        ("inputs of braces that wait are evaluated first", MULTI_JOIN,
         "return [self.inputs[place] for place in self.deciding_order]",
         "return [self.inputs[place] for place in reversed(self.deciding_order)]"),
        ("indexes of braces that lack suspended tuples are adopted", "engine/operators/visits.py",
         "index.is_partial = place in self._partial_inputs", "index.is_partial = False"),
    )
)  # fmt: skip
MULTI_JOIN, VISITS = "engine/operators/multi_join.py", "engine/operators/visits.py"
EXECUTORS = tuple(
    Breakage(name, file, right, wrong, "executors")
    for name, file, right, wrong in (
        ("rows of a push are remembered before others have visited", MULTI_JOIN,
         "        for place in self._turns:\n            yield from self._combined(place, entered[place])\n"
         "            self._remember(place, entered[place])\n",
         "        for place in self._turns:\n            self._remember(place, entered[place])\n"
         "        for place in self._turns:\n            yield from self._combined(place, entered[place])\n"),
        ("only the first index gets new rows", MULTI_JOIN,
         "for index in self._visits.indexes[place].values()] if len(batch) else []",
         "for index in list(self._visits.indexes[place].values())[:1]] if len(batch) else []"),
        ("rows are dropped when one other input has passed their end", MULTI_JOIN,
         "others = min(child.frontier", "others = max(child.frontier"),
        ("what an undone slice remembered stays", MULTI_JOIN,
         "                        index.state.take_back(tuples)", "                        pass"),
        ("rows that could not meet anybody are forgotten", MULTI_JOIN,
         "                index.put_off(batch)", "                pass"),
        ("the history of a multi-way join is that of one row", MULTI_JOIN,
         "tuples = concatenate(self.inputs[root].layout, self._visits.first_index(root).tuples_held())",
         "tuples = concatenate(self.inputs[root].layout, self._visits.first_index(root).tuples_held()).sliced(0, 1)"),
        ("an index that is made later is empty", VISITS,
         "                    index.add(batch)", "                    pass"),
        ("an index may lack old tuples", VISITS,
         "index.may_be_incomplete = False", "index.may_be_incomplete = True"),
        ("only the first of several states of an input is rebuilt", "migration/state_matching.py",
         "        elif self._is_rebuilt(state, wanted):\n            history += state.rebuild(*inputs)",
         "        elif self._is_rebuilt(state, wanted):\n            history += state.rebuild(*inputs)\n"
         "            inputs[:] = [[] for _ in inputs]"),
        ("a changed order emits again what was emitted", "migration/state_matching.py",
         "            operator.emits_from = self._predecessors[id(operator)].emits_from", "            pass"),
    )
)  # fmt: skip
ALL = (*BREAKAGES, *JUST_IN_TIME, *EXECUTORS)


def sources(breakage: Breakage, root: Path = ROOT) -> str:
    """The text of the file with the breakage in it."""
    text = (root / "src" / "midstream" / breakage.file).read_text()
    assert text.count(breakage.right) == 1, f"{breakage.name}: the text stands in {breakage.file} not exactly once"
    return text.replace(breakage.right, breakage.wrong)


def cases_until_found(tree: Path, kind: str, seed: str, cases: int) -> dict[str, object]:
    """Play random cases with the sources in the tree; the number of the first that fails, and how."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.property.breakages", "--play", kind, "--seed", seed, "--cases", str(cases)]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"case": 0, "failure": done.stderr.strip().rpartition("\n")[2]}
    return dict(json.loads(done.stdout.strip().rpartition("\n")[2]))


def play(kind: str, seed: str, cases: int) -> None:
    """In the copy: print after how many cases the first one failed."""
    # Plans and tables are many and live short; collecting them in between takes a tenth of the time.
    gc.disable()
    kinds = {
        "migrations": migration_failures,
        "just in time": just_in_time_failures,
        "executors": executor_failures,
    }
    failures = kinds[kind](seed)
    for number, failure in enumerate(failures, 1):
        if number % 200 == 0:
            gc.collect()
        if failure is not None:
            print(json.dumps({"case": number, "failure": failure}))
            return
        if number == cases:
            print(json.dumps({"case": None, "failure": None}))
            return


def migration_failures(master: str) -> Iterator[str | None]:
    """How each random case of ``make soak`` failed; None if it did not."""
    from midstream.testing.soak import trials

    for seed in count():
        for trial in trials(f"{master} {seed}"):
            yield None if trial.failure is None else trial.failure.kind


def just_in_time_failures(master: str) -> Iterator[str | None]:
    """The same for random cases with just-in-time processing: joins, and any queries, in turns."""
    from midstream.testing import random_case
    from midstream.testing.choices import Rejected, SeededChoices
    from midstream.testing.soak import failure_kind
    from tests.property.test_just_in_time import check

    for seed in count():
        for play in (check, lambda choices: random_case(choices, just_in_time=True).check()):
            try:
                play(SeededChoices(f"{master} {seed}"))
                yield None
            except Rejected:
                continue
            except Exception as failure:
                yield failure_kind(failure)


def executor_failures(master: str) -> Iterator[str | None]:
    """The same for random migrations among multi-way joins, eddies, STAIRs and trees."""
    from midstream.testing import random_case
    from midstream.testing.choices import Rejected, SeededChoices
    from midstream.testing.soak import failure_kind

    for seed in count():
        try:
            random_case(SeededChoices(f"{master} {seed}"), braces=True).check()
            yield None
        except Rejected:
            continue
        except Exception as failure:
            yield failure_kind(failure)


def main(words: list[str], seed: str = SEED, cases: int = CASES) -> int:
    chosen = [b for b in ALL if not words or any(word in f"{b.cases} {b.file} {b.name}" for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT / "src", tree / "src")
        keep_compiled(tree)
        for breakage in chosen:
            path = tree / "src" / "midstream" / breakage.file
            right = path.read_text()
            path.write_text(sources(breakage))
            found = cases_until_found(tree, breakage.cases, seed, cases)
            path.write_text(right)
            survivors += found["case"] is None
            print(
                f"{found['case'] or 'SURVIVED'!s:>8}  {breakage.file}: {breakage.name} ({found['failure']})", flush=True
            )
    print(f"{len(chosen) - survivors} of {len(chosen)} found within {cases} cases")
    return 1 if survivors else 0


def keep_compiled(tree: Path) -> None:
    """Compile anew only the functions of a file that has changed: no breakage is in code that others are made of."""
    path = tree / "src" / "midstream" / "engine" / "kernels.py"
    text, whole = path.read_text(), "cache._source_stamp = _SOURCES"
    assert text.count(whole) == 1
    own = "cache._source_stamp = hashlib.sha256(Path(function.__code__.co_filename).read_bytes()).hexdigest()"
    path.write_text(text.replace(whole, own))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play is not None:
        play(given.play, given.seed, given.cases)
    else:
        sys.exit(main(given.words, given.seed, given.cases))
