"""Adaptation of a query on Spark, in its driver: combines what cells measured, decides once, writes one command.

    cells ── sizes, with their figures ──▶ PlanAdaptation ── the command that a person would write ──▶ all cells
                                                └── adaptation.jsonl: decisions, regret, pin, coefficients

A micro-batch is complete when all cells have reported it, or when a cell reports the next one (a cell without rows does
not report). Then the latest sizes of all cells are compared, unless a migration is in progress or a command has not
been carried out everywhere. Sizes count for the plan with which they were measured.

A command contains the decision that led to it, so neither ever exists without the other: after a restart the commands
are replayed, and decisions that the process did not get to record are read from them. Nothing is decided again.
A command to migrate without a decision is a person's, whichever process wrote it: it pins the plan, until adaptation
is asked for again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from midstream.adaptation.calibration import calibrate
from midstream.adaptation.controller import MOST_DECISIONS, Controller, ControllerState
from midstream.adaptation.decisions import Decision
from midstream.adaptation.hot_keys import hot_keys_over_cells
from midstream.adaptation.measured_sizes import MeasuredSizes, sizes_over_cells
from midstream.adaptation.pause import Pause
from midstream.adaptation.policy import Adaptation
from midstream.algebra.plan import Plan
from midstream.errors import MidstreamError
from midstream.planning.cost.coefficients import CostCoefficients
from midstream.planning.cost.sizes import PlanSizes
from midstream.planning.cost.statistics import JoinKeys
from midstream.runtime.control import ControlDirectory
from midstream.runtime.messages import AdaptationEntry, CellFigures, ClusterMetrics, PlanJson
from midstream.runtime.plan_changes import PlanChanges
from midstream.runtime.run import Migration

__all__ = ["PlanAdaptation"]

_LOG = logging.getLogger(__name__)


@dataclass
class _Cell:
    """What is known of a cell."""

    batches: int
    received: int
    considered: int
    """How many rows it had received at the last consideration."""
    sizes: MeasuredSizes | None = None
    """The latest sizes, and the plan that was in force when they were measured."""
    plan: PlanJson | None = None
    hot_keys: tuple[JoinKeys, ...] = ()
    """As they were counted last, with the plan in force."""


class PlanAdaptation:
    """Decides for a query on Spark, and remembers. Thread-safe: cells report from a thread of Spark's.

    It continues where the previous process stopped, from what is in the control directory. What Spark's thread reports
    has a lock of its own: Spark's scheduler must not wait for a decision.
    """

    def __init__(self, control: ControlDirectory, changes: PlanChanges, cells: int) -> None:
        self._lock = threading.RLock()
        self._control = control
        self._changes = changes
        self._count = cells
        self._reports = threading.Lock()
        self._cells: dict[int, _Cell] = {}
        self._reporting: str | None = None
        """The id of the query whose cells report."""
        self._reported: set[int] = set()
        """The cells that have reported the micro-batch under way."""
        self._has_new_sizes = False
        self._is_ready = False
        self._failures: list[tuple[int, str]] = []
        """The cells in which measuring has failed, and why, if it is not recorded yet."""
        self._pause = Pause("micro-batches")
        entries = control.adaptation()
        self._entries = entries
        self._must_rewrite = True
        """Whether the file may lack something that is among the entries, or have something else."""
        self._has_decided = any(entry.decision is not None for entry in entries)
        """Whether the previous process has decided anything."""
        latest = entries[-1] if entries else None
        self._query = None if latest is None else latest.query
        self._since = 0 if latest is None else latest.since
        self._awaited = None if latest is None else latest.awaited
        self._controller: Controller | None = None
        if latest is not None:
            self._controller = Controller(latest.policy, latest.policy.coefficients or CostCoefficients())
            decisions = [entry.decision for entry in entries if entry.decision is not None]
            self._controller.restore(latest.state, decisions)
            self._adopt(self._controller)

    @property
    def policy(self) -> Adaptation | None:
        """How cells measure their joins and how decisions are made; None if the query does not adapt."""
        with self._lock:
            controller = self._controller
            return None if controller is None or controller.policy.mode == "off" else controller.policy

    @property
    def is_pinned(self) -> bool:
        """Whether a person has chosen the plan."""
        with self._lock:
            return self._controller is not None and self._controller.is_pinned

    def decisions(self) -> list[Decision]:
        """The latest decisions, including those before a restart."""
        with self._lock:
            return [] if self._controller is None else list(self._controller.decisions)

    def choose(self, adapt: str | Adaptation, query: str | None, has_begun: bool) -> None:
        """Adapt in this way from now on. A plan that a person chose before is no longer pinned.

        ``query`` is the id of the query, if it is known. If the query ``has_begun``, a command tells its cells.
        """
        chosen = Adaptation.chosen(adapt)
        with self._lock:
            before = self.policy
            if chosen is None:
                if self._controller is None:
                    return
                policy = msgspec.structs.replace(self._controller.policy, mode="off")
            else:
                known = None if self._controller is None else self._controller.coefficients
                policy = msgspec.structs.replace(chosen, coefficients=chosen.coefficients or known or calibrate())
            if has_begun and before != (None if chosen is None else policy):
                self._changes.submit_adaptation(None if chosen is None else policy, query)
            is_first = self._controller is None
            controller = self._replace(policy, keep=True)
            self._since = self._control.last_number
            self._pause = Pause("micro-batches")
            if is_first:
                self._query = query
                self._adopt(controller)
            self._note()

    def take(self, cells: Sequence[CellFigures]) -> None:
        """Take new figures of some cells, after a micro-batch. Decides nothing, so Spark's thread does not wait."""
        with self._reports:
            for figures in cells:
                if figures.query != self._reporting:
                    self._reporting = figures.query
                    self._cells.clear()
                    self._reported.clear()
                self._take(figures)

    def _take(self, figures: CellFigures) -> None:
        number, known = figures.cell, self._cells.get(figures.cell)
        if known is not None and figures.batches <= known.batches:
            # A micro-batch that was repeated.
            return
        if number in self._reported:
            # The next micro-batch has begun, so all cells are done with the one before.
            self._complete_batch()
        self._reported.add(number)
        if known is None:
            # What the cell received before this process began was considered by the previous one, or never will be.
            is_new = figures.batches <= 1 and not self._has_decided
            before = 0 if is_new else figures.rows_received
            known = self._cells[number] = _Cell(figures.batches, figures.rows_received, before)
        known.batches, known.received = figures.batches, figures.rows_received
        if figures.plan_json != known.plan:
            known.sizes, known.plan, known.hot_keys = None, None, ()
        if figures.sizes is not None:
            known.sizes, known.plan = figures.sizes, figures.plan_json
            known.hot_keys = known.hot_keys if figures.sizes.hot_keys is None else figures.sizes.hot_keys
            self._has_new_sizes = True
        if figures.measuring_failure is not None:
            self._failures.append((number, figures.measuring_failure))
        if len(self._reported) == self._count:
            self._complete_batch()

    def _complete_batch(self) -> None:
        """All cells are done with a micro-batch: what they have measured can be considered."""
        self._reported.clear()
        self._is_ready |= self._has_new_sizes
        self._has_new_sizes = False

    def follow(self, query: str | None, history: Sequence[Migration]) -> None:
        """Note what became of the query's migrations, people's and its own. ``query`` is the id that Spark gives it."""
        with self._lock:
            controller = self._controller
            if controller is None:
                return
            if query is not None and query != self._query:
                if self._query is not None:
                    # The control directory was another query's before.
                    controller = self._replace(controller.policy, keep=False)
                    self._entries, self._awaited, self._must_rewrite = [], None, True
                self._query = query
                self._note()
            chosen = [m for m in history if m.decision is None and m.number > self._since and m.state != "refused"]
            if chosen and not controller.is_pinned:
                controller.pin()
                self._note()
            own = next((migration for migration in history if migration.number == self._awaited), None)
            if own is not None and own.is_over:
                if own.state == "completed":
                    controller.note_migration(own.rows_recomputed)
                self._awaited = None
                self._note()

    def consider(self, in_force: PlanJson, plan: Plan, metrics: ClusterMetrics, last_command: int) -> None:
        """Compare the plan in force, given also as JSON, with the cheapest one, if there are new sizes; replace it.

        Nothing may be in progress. ``last_command`` is the latest command by which that was determined.
        """
        with self._lock:
            controller = self._controller
            if controller is None or controller.policy.mode == "off" or metrics.finished:
                return
            self._note_failures(controller, plan, metrics)
            measured = self._measured(in_force)
            if not measured:
                return
            before = controller.state.number
            proposal = self._pause.attempt(
                metrics.batches,
                lambda: controller.consider(
                    plan,
                    [sent.sizes() for _, sent, _ in measured],
                    [rows for _, _, rows in measured],
                    metrics.batches,
                    metrics.watermark,
                    [number for number, _, _ in measured],
                    self._changes.shapes(),
                ),
                lambda reason: controller.note_failure(plan, reason, metrics.batches, metrics.watermark),
            )
            if controller.state.number == before:
                return
            if proposal is not None:
                decision = controller.decisions[-1]
                try:
                    self._awaited = self._changes.submit(
                        plan, proposal.plan, proposal.strategy, proposal.options, metrics, decision, after=last_command
                    )
                    controller.plan_changed()
                except MidstreamError as problem:
                    controller.withdraw(f"The change could not be submitted: {problem.message}.")
            self._note(controller.decisions[-1])

    def sizes(self) -> PlanSizes | None:
        """The latest sizes of all cells together; None before a cell has measured the plan in force."""
        with self._reports:
            sent = [cell.sizes for _, cell in sorted(self._cells.items()) if cell.sizes is not None]
        return sizes_over_cells([sizes.sizes() for sizes in sent]) if sent else None

    def hot_keys(self) -> tuple[JoinKeys, ...]:
        """The hot keys of all cells together, as they were counted last."""
        with self._reports:
            found = [cell.hot_keys for _, cell in sorted(self._cells.items())]
        return hot_keys_over_cells(found)

    def _note_failures(self, controller: Controller, plan: Plan, metrics: ClusterMetrics) -> None:
        """Note where measuring has failed in a cell."""
        with self._reports:
            failures, self._failures = self._failures, []
        if failures:
            # Without that cell, it is unknown which one is the slowest.
            self._pause.extend(metrics.batches)
        for cell, failure in failures:
            reason = f"In cell {cell}: {failure}"
            _LOG.warning("%s", reason)
            controller.note_failure(plan, reason, metrics.batches, metrics.watermark, cell)
            self._note(controller.decisions[-1])

    def _measured(self, in_force: PlanJson) -> list[tuple[int, MeasuredSizes, int]]:
        """If there is something new: the latest sizes of each cell, with this plan, and its rows since the last call
        that gave some."""
        with self._reports:
            if not self._is_ready:
                return []
            self._is_ready = False
            cells = [(number, cell) for number, cell in sorted(self._cells.items()) if cell.plan == in_force]
            found = [(n, c.sizes, c.received - c.considered) for n, c in cells if c.sizes is not None]
            if found:
                for cell in self._cells.values():
                    cell.considered = cell.received
            return found

    def _replace(self, policy: Adaptation, keep: bool) -> Controller:
        """A controller with this policy; if ``keep``, with what the previous one knows, apart from the pin."""
        assert policy.coefficients is not None
        controller = Controller(policy, policy.coefficients)
        if self._controller is not None and keep:
            state = msgspec.structs.replace(self._controller.state, is_pinned=False)
            controller.restore(state, self._controller.decisions)
        self._controller = controller
        return controller

    def _adopt(self, controller: Controller) -> None:
        """Take over decisions from commands that the previous process did not get to record."""
        for command, change, _ in self._changes.commands(self._query):
            if change.decision is not None and change.decision.number > controller.state.number:
                state = ControllerState(
                    is_pinned=controller.is_pinned,
                    correction=controller.state.correction,
                    number=change.decision.number,
                )
                controller.restore(state, [*controller.decisions, change.decision])
                self._awaited = command.number
                self._note(change.decision)

    def _note(self, decision: Decision | None = None) -> None:
        """Store how adaptation continues, and a decision."""
        controller = self._controller
        assert controller is not None
        entry = AdaptationEntry(
            query=self._query,
            policy=controller.policy,
            since=self._since,
            state=controller.state,
            awaited=self._awaited,
            decision=decision,
        )
        self._entries.append(entry)
        if len(self._entries) > 2 * MOST_DECISIONS:
            decided = [old for old in self._entries[:-1] if old.decision is not None]
            self._entries = [*decided[1 - MOST_DECISIONS :], entry]
            self._must_rewrite = True
        must_rewrite, self._must_rewrite = self._must_rewrite, True
        if must_rewrite:
            self._control.replace_adaptation(self._entries)
        else:
            self._control.append_adaptation(entry)
        self._must_rewrite = False
