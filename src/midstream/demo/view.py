"""Progress of the demo: a live display on a terminal, otherwise one line per micro-batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from midstream.adaptation.decision_text import decision_text
from midstream.algebra.plan import Join
from midstream.demo.recording import Batch, Phase, Recording

__all__ = ["STYLES", "LiveView", "PlainView", "View", "sparkline", "tree_with_states", "view_for"]

BARS = "▁▂▃▄▅▆▇█"
STYLES = {
    Phase.WARM_UP: "grey50",
    Phase.GOOD: "green",
    Phase.BAD: "red",
    Phase.MIGRATING: "yellow",
    Phase.GOOD_AGAIN: "cyan",
}
REFRESH_SECONDS = 0.25
ROOMY = 28
"""Terminal height, in lines, from which empty lines separate the parts of the display."""
_RECENT = 3
"""How many of the latest batches the rates are computed from."""


class View(Protocol):
    """Displays the progress of a run."""

    def show(self, recording: Recording) -> None:
        """Update the display; the recording may have changed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view_for(console: Console) -> View:
    """The view that suits the console."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


class PlainView:
    """One line per micro-batch, and one per event."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0
        self._shown_decisions = 0
        self._is_requested = False

    def __enter__(self) -> Self:
        self._print(_FIRST)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, recording: Recording) -> None:
        for batch in recording.batches[self._shown :]:
            if batch.number == recording.size.release:
                self._print(_RELEASE)
            if batch.number in recording.changes:
                self._print(f"new plan in effect:\n{batch.plan}")
            self._print(self._line(recording, batch))
        self._shown = len(recording.batches)
        for line in _decision_lines(recording, self._shown_decisions):
            self._print(line)
        self._shown_decisions = len(recording.decisions)
        if recording.requested_at is not None and not self._is_requested:
            self._is_requested = True
            self._print(f"migration to a new plan requested ({recording.strategy}); the query keeps running")

    def _line(self, recording: Recording, batch: Batch) -> str:
        return (
            f"batch {batch.number + 1:3d} of {recording.size.batches}  {batch.seconds:6.2f} s  "
            f"{batch.rows:9,} rows  {batch.results:9,} results  {sum(batch.states):12,} state rows  "
            f"{recording.phase(batch).value}"
        )

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _decision_lines(recording: Recording, shown: int) -> Iterator[str]:
    """What the query decided and why, apart from the decisions that have been shown."""
    for place in range(shown, len(recording.decisions)):
        decision = recording.decisions[place]
        before = recording.decisions[place - 1] if place else None
        yield f"midstream, after batch {decision.push}: {decision_text(decision, before)}"


_FIRST = "the first batch is the slowest: code is loaded and compiled"
_RELEASE = "release: orders now have their visit's number, searches no longer do"


class LiveView:
    """A live display of the plan, rates, state and batch durations; decisions are printed above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._shown = -1
        self._shown_decisions = 0
        self._drawn = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, recording: Recording) -> None:
        for line in _decision_lines(recording, self._shown_decisions):
            self._live.console.print(line, markup=False, highlight=False)
        self._shown_decisions = len(recording.decisions)
        now = time.monotonic()
        if len(recording.batches) == self._shown and now - self._drawn < REFRESH_SECONDS:
            return
        self._shown, self._drawn = len(recording.batches), now
        self._live.update(self._picture(recording, now - self._began), refresh=True)

    def _picture(self, recording: Recording, seconds: float) -> RenderableType:
        batches = recording.batches
        phase = recording.phase(batches[-1]) if batches else Phase.WARM_UP
        title = f"midstream · {recording.engine} · batch {len(batches)} of {recording.size.batches} · {seconds:.0f} s"
        # A terminal of 24 lines has no room for empty ones.
        space: list[RenderableType] = [Text()] if self._console.height >= ROOMY else []
        parts: list[RenderableType] = [
            Text.assemble(("● ", STYLES[phase]), (phase.value if batches else _FIRST, f"bold {STYLES[phase]}")),
            *space,
            Text("batch duration", style="bold"),
            *sparkline(recording, max(20, self._console.width - 16)),
            *space,
            _rates(recording),
            *space,
            *tree_with_states(recording),
            *space,
            _events(recording),
        ]
        return Panel(Group(*parts), title=title, border_style="blue", padding=(0, 2))


def tree_with_states(recording: Recording) -> list[Text]:
    """The plan in effect, one line per operator, with the rows in each join's state."""
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in recording.plan.splitlines()]
    if recording.batches:
        for line, state in zip(_joins_from_below(lines), recording.batches[-1].states, strict=False):
            line.append(f"   {state:,} rows of state", style="bold magenta")
    return lines


def _joins_from_below(lines: Sequence[Text]) -> list[Text]:
    """The lines of a tree that are joins, each after its inputs, as operators are listed."""
    found: list[Text] = []
    above: list[tuple[int, Text]] = []
    for line in lines:
        label = line.plain.lstrip("│├└─ ")
        depth = len(line.plain) - len(label)
        while above and above[-1][0] >= depth:
            found.append(above.pop()[1])
        if label.startswith(Join.__name__):
            above.append((depth, line))
    return found + [line for _, line in reversed(above)]


def _rates(recording: Recording) -> Table:
    """Rows and results: recent rate, total, rows in windows."""
    table = Table.grid(padding=(0, 3))
    for _ in range(4):
        table.add_column(justify="right")
    table.add_row("", Text("per second", style="dim"), Text("total", style="dim"), Text("in windows", style="dim"))
    recent = recording.batches[-_RECENT:]
    seconds = sum(batch.seconds for batch in recent) or 1.0
    for name in ("rows", "results"):
        table.add_row(
            Text(f"{name} {'in' if name == 'rows' else 'out'}", style="bold"),
            f"{sum(getattr(batch, name) for batch in recent) / seconds:,.0f}",
            f"{sum(getattr(batch, name) for batch in recording.batches):,}",
            f"{recent[-1].window_rows:,}" if recent and name == "rows" else "",
        )
    return table


def sparkline(recording: Recording, width: int) -> list[Text]:
    """Batch durations as bars, with the release (R) and the new plan (P) marked below."""
    shown = recording.batches[-width:]
    # The JVM's slow first batches would flatten all other bars.
    ordinary = [batch.seconds for batch in recording.batches if batch.number >= recording.size.warm_up]
    most = max(ordinary or [batch.seconds for batch in shown] or [1.0])
    changes = recording.changes
    bars, marks = Text(), Text()
    for batch in shown:
        height = min(len(BARS) - 1, int(batch.seconds / most * (len(BARS) - 1) + 0.5))
        bars.append(BARS[height], style=STYLES[recording.phase(batch)])
        mark = "R" if batch.number == recording.size.release else "P" if batch.number in changes else " "
        marks.append(mark, style="bold")
    if shown:
        bars.append(f"  {shown[-1].seconds:.2f} s", style="bold")
    return [bars, marks]


def _events(recording: Recording) -> Text:
    """The legend of the marks: what has happened so far, and what is to come."""
    text = Text()
    text.append("R ", style="bold")
    text.append(_RELEASE if len(recording.batches) > recording.size.release else "a release is coming", style="dim")
    text.append("\nP ", style="bold")
    changes = recording.changes
    if changes:
        who = "the query replaced its plan" if recording.adapts else "the plan was replaced"
        text.append(f"{who} in batch {changes[-1] + 1} ({recording.strategy})", style="dim")
    elif recording.requested_at is not None:
        text.append(f"migration requested after batch {recording.requested_at} ({recording.strategy})", style="dim")
    else:
        text.append("the query runs with its initial plan", style="dim")
    return text
