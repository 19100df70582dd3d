"""Every error midstream raises on purpose, with its stable code.

The first digit after ``M`` names the area: 1 query text, 2 plan, 3 running query, 4 data, 5 environment,
6 topology and placement.
An error has a primary line (lowercase, no full stop), optionally a detail (facts) and a hint (an action):

>>> print(UnknownColumn('column "colour" does not exist in stream "bids"',
...                     detail='The stream has the columns "price", "color".', hint='Did you mean "color"?'))
[M1004] column "colour" does not exist in stream "bids"
  detail: The stream has the columns "price", "color".
  hint: Did you mean "color"?
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = [
    "AlreadyInTopology",
    "AlreadyRunning",
    "AmbiguousColumn",
    "BadArgument",
    "BadDeploymentFile",
    "BadGrouping",
    "BadJoinOrder",
    "BadOption",
    "BadPlan",
    "BadStreamDeclaration",
    "BadTopology",
    "BadWindow",
    "BrokenRun",
    "CheckpointMismatch",
    "CyclicTopology",
    "DataError",
    "DecreasingWatermark",
    "DeploymentError",
    "DuplicateName",
    "FinishedRun",
    "InvalidPlacement",
    "JavaMissing",
    "KafkaUnreachable",
    "MalformedMessage",
    "MalformedRow",
    "MidstreamError",
    "MigrationRefused",
    "MissingColumn",
    "NoControlDirectory",
    "NoDecisions",
    "NoFreeSlot",
    "NotRunning",
    "NotSettled",
    "NotStreaming",
    "NotSupported",
    "PackageMissing",
    "ParseError",
    "PathProblem",
    "PlanError",
    "PortInUse",
    "PushedTypeMismatch",
    "QueryError",
    "RunError",
    "SinkUnreachable",
    "SparkFailed",
    "SparkMissing",
    "StateOutOfReach",
    "TableConflict",
    "TableMismatch",
    "TopologyError",
    "TypeMismatch",
    "UnboundedState",
    "UnknownColumn",
    "UnknownFormat",
    "UnknownFunction",
    "UnknownLink",
    "UnknownNode",
    "UnknownStream",
    "UnknownStreamPushed",
    "UnreadableFile",
    "UnstorableResult",
    "did_you_mean",
    "quoted",
    "shortened",
]


_LONGEST_QUOTED, _LONGEST_WORD, _LONGEST_TEXT = 200, 1_000, 4_000
# Shorter words stay whole: a path is one word.
_TOO_LONG = re.compile(rf"""(?<!\w)(["'])(?:(?!\1)[^\n]){{{_LONGEST_QUOTED},}}\1(?!\w)|\S{{{_LONGEST_WORD},}}""")


class MidstreamError(Exception):
    """Base class of all errors that are not bugs in midstream."""

    code = "M0000"

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        message = shortened(message)
        super().__init__(message)
        self.message = message
        self.detail = None if detail is None else shortened(detail)
        self.hint = None if hint is None else shortened(hint)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.message}", *self._excerpt()]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        return []


class QueryError(MidstreamError):
    """An error in the query text, with its position once the text is known."""

    code = "M1000"

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        text: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.text = text
        self.position = position

    def at(self, text: str, position: int | None) -> QueryError:
        """Set the position in the text unless the error already has one; returns the error itself."""
        if self.position is None:
            self.text, self.position = text, position
        return self

    @property
    def line(self) -> int | None:
        """The line of the problem, counted from 1."""
        if self.text is None or self.position is None:
            return None
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int | None:
        """The column of the problem in its line, counted from 1."""
        if self.text is None or self.position is None:
            return None
        return self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1

    def _excerpt(self) -> list[str]:
        if self.text is None or self.line is None or self.column is None:
            return []
        source = self.text.split("\n")[self.line - 1]
        before = source[: self.column - 1]
        after = source[self.column - 1 :]
        if len(before) > 80:
            before = "…" + before[-79:]
        if len(after) > 40:
            after = after[:39] + "…"
        prefix = f"  line {self.line}: "
        # Tabs are kept so that the caret is below its character in any terminal.
        blank = "".join("\t" if c == "\t" else " " for c in before)
        return [prefix + before + after, " " * len(prefix) + blank + "^"]


class ParseError(QueryError):
    code = "M1001"


class NotSupported(QueryError):
    code = "M1002"


class UnknownStream(QueryError):
    code = "M1003"


class UnknownColumn(QueryError):
    code = "M1004"


class AmbiguousColumn(QueryError):
    code = "M1005"


class UnknownFunction(QueryError):
    code = "M1006"


class TypeMismatch(QueryError):
    code = "M1007"


class BadWindow(QueryError):
    code = "M1008"


class DuplicateName(QueryError):
    code = "M1009"


class BadGrouping(QueryError):
    code = "M1010"


class BadStreamDeclaration(MidstreamError):
    code = "M1011"


class PlanError(MidstreamError):
    """A plan that is invalid or refused."""

    code = "M2000"


class BadPlan(PlanError):
    code = "M2001"


class BadJoinOrder(PlanError):
    code = "M2002"


class UnboundedState(PlanError):
    code = "M2003"


class RunError(MidstreamError):
    """The running query cannot do what was requested."""

    code = "M3000"


class DecreasingWatermark(RunError):
    code = "M3001"


class FinishedRun(RunError):
    code = "M3002"


class BrokenRun(RunError):
    code = "M3003"


class MigrationRefused(RunError):
    """The plan cannot be replaced in this way; the query keeps its current plan."""

    code = "M3004"


class CheckpointMismatch(RunError):
    """A checkpoint or control directory belongs to another query."""

    code = "M3005"


class NotStreaming(RunError):
    """The operation is supported for streams only."""

    code = "M3006"


class SparkMissing(RunError):
    """Spark is not installed."""

    code = "M3007"


class JavaMissing(RunError):
    """The Java that Spark needs is not installed, or too old."""

    code = "M3008"


class PackageMissing(RunError):
    """A Python package that this part of midstream needs is not installed."""

    code = "M3009"


class NoControlDirectory(RunError):
    """A query on a cluster needs a control directory that all machines can read."""

    code = "M3010"


class MalformedMessage(RunError):
    """A file of a control directory, or stored state, is not what midstream writes."""

    code = "M3011"


class BadOption(RunError):
    """An option of a run that does not exist or has a wrong value."""

    code = "M3012"


class NoDecisions(RunError):
    """A report of decisions was asked for, and there are none."""

    code = "M3013"


class TableMismatch(RunError):
    """A table that is read or written does not fit, or is not there."""

    code = "M3014"


class TableConflict(RunError):
    """Another query writes to the same table, or has written what this one is about to write."""

    code = "M3015"


class UnstorableResult(RunError):
    """A column of the result has a name or a type that the table's format lacks."""

    code = "M3016"


class DataError(MidstreamError):
    """A pushed batch does not match its stream's declaration."""

    code = "M4000"


class MissingColumn(DataError):
    code = "M4001"


class PushedTypeMismatch(DataError):
    code = "M4002"


class UnknownStreamPushed(DataError):
    code = "M4003"


class MalformedRow(DataError):
    """A row of a file cannot be read as its stream's columns."""

    code = "M4004"


class UnreadableFile(DataError):
    """A file is not in the format it should have."""

    code = "M4005"


class DeploymentError(MidstreamError):
    """A problem with the environment: arguments, files, ports, Spark."""

    code = "M5000"


class BadArgument(DeploymentError):
    """Invalid usage of the command line."""

    code = "M5001"


class PathProblem(DeploymentError):
    """A file or directory is missing or cannot be used."""

    code = "M5002"


class UnknownFormat(DeploymentError):
    """Spark does not know the format of a source or sink."""

    code = "M5003"


class PortInUse(DeploymentError):
    code = "M5004"


class SparkFailed(DeploymentError):
    """Spark did not start, or the query on Spark failed."""

    code = "M5005"


class NotRunning(DeploymentError):
    """No query is running with this control directory."""

    code = "M5006"


class AlreadyRunning(DeploymentError):
    """Another process is running the query."""

    code = "M5007"


class KafkaUnreachable(DeploymentError):
    """No broker answers, or a topic does not exist."""

    code = "M5008"


class TopologyError(MidstreamError):
    """A topology, a change of it, or a placement on it that is invalid; topology and placement stay as they were."""

    code = "M6000"


class BadTopology(TopologyError):
    """A value of a node, a link, an event or a topology file that cannot be."""

    code = "M6001"


class UnknownNode(TopologyError):
    code = "M6002"


class UnknownLink(TopologyError):
    code = "M6003"


class AlreadyInTopology(TopologyError):
    """A node or link is added that exists already."""

    code = "M6004"


class CyclicTopology(TopologyError):
    """A link would lead rows back to where they came from."""

    code = "M6005"


class SinkUnreachable(TopologyError):
    """No path leads from a source to where the rows are needed."""

    code = "M6006"


class NoFreeSlot(TopologyError):
    """No node on the way has room for a stage."""

    code = "M6007"


class StateOutOfReach(TopologyError):
    """A node is to be removed, and the state that it holds cannot be brought to any other."""

    code = "M6008"


class InvalidPlacement(TopologyError):
    """A placement breaks one of the conditions for a valid deployment."""

    code = "M6009"


class BadDeploymentFile(TopologyError):
    """A file that describes a deployment does not fit together."""

    code = "M6010"


class NotSettled(TopologyError):
    """A simulated deployment does not come to rest, however long it is waited for."""

    code = "M6011"


def shortened(text: str) -> str:
    """The message with the middle of overlong parts cut out: quoted names, words, the whole text.

    >>> shortened('column "' + "x" * 100_000 + '" does not exist') == f'column "{"x" * 79}…{"x" * 20}" does not exist'
    True
    """
    if len(text) <= _LONGEST_QUOTED:
        return text
    text = _TOO_LONG.sub(lambda found: f"{found[0][:80]}…{found[0][-21:]}", text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 201]}…{text[-200:]}"


def quoted(names: Iterable[str]) -> str:
    """Names for a message.

    >>> quoted(["a", "b"])
    '"a", "b"'
    """
    return ", ".join(f'"{name}"' for name in names)


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint naming the closest candidate, if one is close.

    >>> did_you_mean("colour", ["color", "price"])
    'Did you mean "color"?'
    """
    close = difflib.get_close_matches(name.lower(), {c.lower(): c for c in candidates}, n=1)
    if not close:
        return None
    original = {c.lower(): c for c in candidates}[close[0]]
    return f'Did you mean "{original}"?'
