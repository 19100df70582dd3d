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

from midstream.adaptation.controller import MOST_DECISIONS
from midstream.adaptation.decision_report import check_report_path, write_decision_report
from midstream.adaptation.decision_text import seconds_text
from midstream.adaptation.decisions import Decision
from midstream.adaptation.policy import Adaptation
from midstream.algebra.stream import TimeDomain
from midstream.cli.failures import DONE
from midstream.cli.output import Output
from midstream.errors import BadArgument, BadOption, did_you_mean, quoted
from midstream.planning.cost.statistics import JoinKeys, StreamStatistics
from midstream.runtime.messages import AdaptationEntry
from midstream.runtime.remote import RemoteQuery

__all__ = ["AdaptationView", "advise", "chosen_adaptation", "inputs_table"]

SHOWN_DECISIONS = 10
SHOWN_KEYS = 5
_HOT = 0.01
"""The share of a join's pairs from which on a key is shown."""
_UNEVEN = 1.2
"""From which imbalance on it is said how much work the slowest cell has."""
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
    kind = float if name == "most_state_bytes" else type(getattr(Adaptation(), name))
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
    streams: tuple[StreamStatistics, ...]
    hot_keys: tuple[JoinKeys, ...]
    domain: TimeDomain

    @classmethod
    def of(cls, remote: RemoteQuery) -> AdaptationView:
        entries = remote.adaptation()
        decisions = [entry.decision for entry in entries if entry.decision is not None]
        status = remote.status()
        streams, keys = ((), ()) if status is None else (status.streams, status.hot_keys)
        domain = remote.query.plan().time_domain
        return cls(entries[-1] if entries else None, decisions[-MOST_DECISIONS:], streams, keys, domain)

    @property
    def mode(self) -> str:
        return "off" if self.latest is None else self.latest.policy.mode

    @property
    def is_pinned(self) -> bool:
        return self.latest is not None and self.latest.state.is_pinned

    @property
    def failures(self) -> int:
        """How often adaptation itself has failed."""
        return sum(decision.failure is not None for decision in self.decisions)

    def document(self) -> dict[str, Any]:
        """As data; of the decisions only the latest ones."""
        latest = self.latest
        return {
            "mode": self.mode,
            "is_pinned": self.is_pinned,
            "regret": 0.0 if latest is None else latest.state.regret,
            "considerations": 0 if latest is None else latest.state.number,
            "failures": self.failures,
            "streams": msgspec.to_builtins(self.streams),
            "hot_keys": msgspec.to_builtins(self.hot_keys),
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
        failures = f", failures: {self.failures:,}" if self.failures else ""
        latest = self.decisions[-1] if self.decisions else None
        slowest = "" if latest is None or not _is_uneven(latest) else f", {_slowest(latest)}"
        return f"{self.mode}, {counts}{failures}{pinned}{slowest}"

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
                parts.append(Text("Nothing has been measured yet: that takes a micro-batch with enough rows."))
            return Group(*parts)
        latest = self.decisions[-1]
        if latest.failure is None:
            parts += [_figures(latest), _joins(latest)]
        parts.append(Text(f"{latest.outcome}: {latest.reason}"))
        if self.streams:
            parts.append(inputs_table(self.streams, self.domain))
        if self.hot_keys:
            parts.append(_hot_keys(self.hot_keys))
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
    # A plan that was changed is no longer in force.
    label = "plan before" if decision.outcome == "changed" else "plan in force"
    table.add_row(label, Text(decision.plan), f"{seconds_text(decision.seconds_now)} per 1,000 rows")
    table.add_row("cheapest plan", Text(decision.best), f"{seconds_text(decision.seconds_best)} per 1,000 rows")
    if decision.cell is not None and decision.failure is None:
        table.add_row("decided by", _slowest(decision))
    table.add_row("lost so far", seconds_text(decision.regret))
    table.add_row("lost until the next decision", seconds_text(decision.expected_loss))
    if decision.strategy is not None:
        table.add_row("a change costs", f"{seconds_text(decision.migration)} by {decision.strategy}")
    return table


def _joins(decision: Decision) -> Table:
    """Per 1,000 arriving rows: what the joins of both plans produce, and their share of the cost of their plan."""
    table = Table("join", "plan", title="joins, per 1,000 arriving rows", title_justify="left")
    for name in ("estimated rows", "counted", "q-error", "cost"):
        table.add_column(name, justify="right")
    joins = decision.joins
    old = "before" if decision.outcome == "changed" else "in force"
    in_force = sum(join.seconds for join in joins if join.in_force)
    in_best = sum(join.seconds for join in joins if join.in_best)
    for join in joins:
        plan = "both" if join.in_force and join.in_best else old if join.in_force else "cheapest"
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


def _is_uneven(decision: Decision) -> bool:
    return decision.cell is not None and decision.imbalance >= _UNEVEN


def _slowest(decision: Decision) -> str:
    uneven = f": {decision.imbalance:.1f} times the work of an average cell" if _is_uneven(decision) else ""
    return f"slowest cell {decision.cell}{uneven}"


def inputs_table(streams: Sequence[StreamStatistics], domain: TimeDomain) -> Table:
    """The streams in a few words, each in its windows."""
    table = Table("input", "lately", title="inputs", title_justify="left")
    for one in streams:
        name = one.alias if one.alias == one.stream else f"{one.stream} {one.alias}"
        table.add_row(Text(name), Text(_stream_text(one, domain)))
    return table


def _stream_text(stream: StreamStatistics, domain: TimeDomain) -> str:
    """How fast a stream is, how much is late, how much passes the conditions on this stream alone."""
    parts = []
    if stream.rate is not None:
        unit = "tick" if domain.timestamp is None else "second"
        rate = f"{stream.rate:,.0f}" if stream.rate >= 100 else f"{stream.rate:.3g}"
        parts.append(f"{rate} rows per {unit} of event time")
    if stream.late_share:
        parts.append(f"{stream.late_share:.1%} late")
    if stream.selectivity is not None and stream.selectivity < 1:
        parts.append(f"{stream.selectivity:.0%} selected")
    return ", ".join(parts) or "nothing known yet"


def _hot_keys(joins: Sequence[JoinKeys]) -> Table:
    """For each join the keys that make most pairs."""
    table = Table("join in force", "key", "most frequent values, and their share of the pairs", title="hot keys",
                  title_justify="left")  # fmt: skip
    for join in joins:
        keys = sorted({key.value: key for key in (*join.left, *join.right)}.values(), key=lambda key: -key.pairs)
        shown = ", ".join(f"{key.value} ({key.pairs:.0%})" for key in keys[:SHOWN_KEYS] if key.pairs >= _HOT)
        sides = [" ".join(aliases) for aliases in join.inputs]
        equal = (f"{left} = {right}" for left, right in zip(*join.key, strict=True))
        table.add_row(Text(" ⋈ ".join(sides)), Text(", ".join(equal)), Text(shown or f"none makes {_HOT:.0%}"))
    return table


def _earlier(decisions: Sequence[Decision]) -> Table:
    table = Table("#", "micro-batch", "outcome", "cheapest", "reason", title="decisions", title_justify="left")
    for decision in decisions:
        table.add_row(
            str(decision.number), f"{decision.push:,}", decision.outcome, Text(decision.best), Text(decision.reason)
        )
    return table
