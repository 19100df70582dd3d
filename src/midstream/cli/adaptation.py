"""Adaptation on the command line: ``--adapt`` and its options, ``midstream advise``, and a line of ``status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from midstream.adaptation.controller import MOST_DECISIONS, duration_text
from midstream.adaptation.decision_report import check_report_path, write_decision_report
from midstream.adaptation.decisions import ConsideredJoin, Decision
from midstream.adaptation.policy import Adaptation
from midstream.cli.failures import DONE
from midstream.cli.output import Output
from midstream.errors import BadArgument, BadOption, did_you_mean, quoted
from midstream.runtime.messages import AdaptationEntry
from midstream.runtime.remote import RemoteQuery

__all__ = ["AdaptationView", "advise", "chosen_adaptation"]

SHOWN_DECISIONS = 10
_OPTIONS = tuple(name for name in Adaptation.__struct_fields__ if name not in ("mode", "coefficients"))


def chosen_adaptation(mode: str | None, options: Mapping[str, str]) -> str | Adaptation | None:
    """What ``--adapt`` and ``--adapt-option`` mean; None: they were not given."""
    if options and mode in (None, "off"):
        raise BadArgument("--adapt-option needs --adapt", hint="Add --adapt auto, or --adapt advise.")
    if mode is None:
        return None
    try:
        policy = Adaptation.chosen(mode)
    except BadOption as problem:
        raise BadArgument(
            f'--adapt cannot be "{mode}"', detail="There are off, advise and auto.", hint=problem.hint
        ) from None
    if policy is None:
        return "off"
    try:
        return msgspec.structs.replace(policy, **{name: _value(name, text) for name, text in options.items()})
    except BadOption as problem:
        raise BadArgument(f"--adapt-option: {problem.message}", detail=problem.detail, hint=problem.hint) from None


def _value(name: str, text: str) -> Any:
    if name not in _OPTIONS:
        raise BadArgument(
            f'there is no --adapt-option "{name}"', detail=f"There are {quoted(_OPTIONS)}.",
            hint=did_you_mean(name, _OPTIONS),
        )  # fmt: skip
    if name == "strategies":
        return tuple(text.split(","))
    kind = type(getattr(Adaptation(), name))
    try:
        return kind(text)
    except ValueError:
        a = "a whole number" if kind is int else "a number"
        raise BadArgument(f'--adapt-option {name} must be {a}, not "{text}"') from None


@dataclass(frozen=True)
class AdaptationView:
    """What is known of a query's adaptation, as data and for people."""

    latest: AdaptationEntry | None
    decisions: list[Decision]
    """The latest 1,000."""

    @classmethod
    def of(cls, remote: RemoteQuery) -> AdaptationView:
        entries = remote.adaptation()
        decisions = [entry.decision for entry in entries if entry.decision is not None]
        return cls(entries[-1] if entries else None, decisions[-MOST_DECISIONS:])

    @property
    def mode(self) -> str:
        return "off" if self.latest is None else self.latest.policy.mode

    @property
    def is_pinned(self) -> bool:
        return self.latest is not None and self.latest.state.is_pinned

    def document(self) -> dict[str, Any]:
        """As data; of the decisions only the latest ones."""
        latest = self.latest
        return {
            "mode": self.mode,
            "is_pinned": self.is_pinned,
            "regret": 0.0 if latest is None else latest.state.regret,
            "considerations": 0 if latest is None else latest.state.number,
            "policy": None if latest is None else msgspec.to_builtins(latest.policy),
            "decisions": [_document(decision) for decision in self.decisions[-SHOWN_DECISIONS:]],
        }

    def line(self) -> str | None:
        """For ``midstream status``; None for a query that was never asked to adapt."""
        if self.latest is None:
            return None
        changes = sum(decision.outcome == "changed" for decision in self.decisions)
        counts = (
            f"decisions: {self.latest.state.number:,}, changes: {changes:,}" if self.decisions else "no decision yet"
        )
        pinned = ", pinned: a person chose the plan" if self.is_pinned else ""
        return f"{self.mode}, {counts}{pinned}"

    def shown(self, control: Path) -> RenderableType:
        """The latest consideration, and a list of those before it."""
        parts: list[RenderableType] = []
        if self.mode == "off":
            parts.append(Text("adaptation is off: this query does not consider other plans", style="bold"))
            parts.append(
                Text(
                    f"To switch it on, stop the query and continue it with midstream run --resume {control} --adapt "
                    "advise (or auto); a program calls adapt() of the running query."
                )
            )
        else:
            parts.append(Text(f"adaptation: {self.line()}", style="bold"))
        if not self.decisions:
            if self.mode != "off":
                parts.append(Text("Nothing has been measured yet: that takes two micro-batches with enough rows."))
            return Group(*parts)
        latest = self.decisions[-1]
        parts += [_figures(latest), _joins(latest.joins), Text(f"{latest.outcome}: {latest.reason}")]
        if self.is_pinned:
            parts.append(
                Text(f"To let it decide again, continue it with midstream run --resume {control} --adapt auto.")
            )
        if len(self.decisions) > 1:
            parts.append(_earlier(self.decisions[-SHOWN_DECISIONS:]))
        return Group(*parts)


def advise(control: Path, report: Path | None, output: Output) -> int:
    """Show what a running query considered last about its plan; write a report of all decisions, if asked to."""
    if report is not None:
        try:
            check_report_path(report)
        except BadOption as problem:
            raise BadArgument(f'--report cannot be "{report}"', hint=problem.hint) from None
    view = AdaptationView.of(RemoteQuery(control))
    if report is not None:
        write_decision_report(view.decisions, report)
    output.say(view.shown(control))
    if report is not None:
        output.say(Text(f"report of {len(view.decisions):,} decisions: {report}"))
    document = {"control": str(control), **view.document()}
    output.document(document if report is None else {**document, "report": str(report)})
    return DONE


def _document(decision: Decision) -> dict[str, Any]:
    joins = [{**msgspec.to_builtins(join), "q_error": join.q_error} for join in decision.joins]
    return {**msgspec.to_builtins(decision), "joins": joins}


def _figures(decision: Decision) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("decision", f"#{decision.number}, after micro-batch {decision.push:,}")
    table.add_row("plan in force", Text(decision.plan), f"{duration_text(decision.seconds_now)} per 1,000 rows")
    table.add_row("cheapest plan", Text(decision.best), f"{duration_text(decision.seconds_best)} per 1,000 rows")
    table.add_row("lost so far", duration_text(decision.regret))
    if decision.strategy is not None:
        table.add_row("a change costs", f"{duration_text(decision.migration)} by {decision.strategy}")
    return table


def _joins(joins: Sequence[ConsideredJoin]) -> Table:
    """Per 1,000 arriving rows: what the joins of both plans produce, and their share of the cost of their plan."""
    table = Table("join", "plan", title="joins, per 1,000 arriving rows", title_justify="left")
    for name in ("estimated rows", "counted", "q-error", "cost"):
        table.add_column(name, justify="right")
    in_force = sum(join.seconds for join in joins if join.in_force)
    in_best = sum(join.seconds for join in joins if join.in_best)
    for join in joins:
        plan = "both" if join.in_force and join.in_best else "in force" if join.in_force else "cheapest"
        whole = in_force if join.in_force else in_best
        estimated = f"{join.rows:,.1f} ± {join.error:,.1f}" if join.is_measured else f"{join.rows:,.1f} (derived)"
        table.add_row(
            Text(" ".join(join.inputs)),
            plan,
            estimated,
            "" if join.counted is None else f"{join.counted:,.1f}",
            "" if join.q_error is None else f"{join.q_error:.2f}",
            f"{join.seconds / whole if whole else 0:.0%}",
        )
    return table


def _earlier(decisions: Sequence[Decision]) -> Table:
    table = Table("#", "micro-batch", "outcome", "cheapest", "reason", title="decisions", title_justify="left")
    for decision in decisions:
        table.add_row(
            str(decision.number), f"{decision.push:,}", decision.outcome, Text(decision.best), Text(decision.reason)
        )
    return table
