"""Sinks as the command line names them: where results go.

    delta:PATH                         a Delta table, each result exactly once; written by the cells, the fastest
    kafka:HOST:PORT/TOPIC              messages, each result at least once, with headers that tell repeats
    parquet:DIR, csv:DIR, json:DIR     files, each result exactly once
    console, noop                      printed, or discarded
    FORMAT or FORMAT:PATH              anything else that Spark can write a stream to, with --sink-option key=value

>>> read_sink("json:out", []).format
'json'
>>> read_sink("delta:s3://bucket/rooms", ["partition_by=room,day", "storage.aws_region=eu-west-1"]).delta_options
{'partition_by': ['room', 'day'], 'properties': {}, 'storage_options': {'aws_region': 'eu-west-1'}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from midstream.cli.places import checked_topic, is_remote
from midstream.errors import BadArgument, DuplicateName, PathProblem, did_you_mean, quoted

__all__ = ["Sink", "check_names", "check_unused", "read_sink"]

_STORAGE = "storage."
"""How options of a table's storage begin."""
FILES = ("parquet", "csv", "json", "orc", "text")
# Spark writes milliseconds by default; event times have microseconds.
_TEXT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WITH_SPACES = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
_DEFAULTS = {"csv": {"header": "true", **_TEXT_TIMES, **_WITH_SPACES}, "json": _TEXT_TIMES}
"""Default options of a sink."""
# An empty field is NULL and "" an empty text, if nullValue is a text that does not occur.
_READ_AGAIN = {"csv": {"multiLine": "true", "nullValue": "\0"}}
"""Options for reading back exactly what was written."""


@dataclass(frozen=True)
class Sink:
    """A format, its options and, for files, a directory."""

    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        return self.format in FILES

    @property
    def is_delta(self) -> bool:
        return self.format == "delta"

    @property
    def is_kafka(self) -> bool:
        """Whether results go to a topic as messages with headers; ``kafka`` alone is Spark's own sink."""
        return self.format == "kafka" and self.path is not None

    @property
    def kafka_options(self) -> dict[str, Any]:
        """The options of ``write_kafka``."""
        others = {name: value for name, value in self.options.items() if name != "key"}
        return {"key": self.options.get("key"), "options": others}

    @property
    def can_be_read_back(self) -> bool:
        """Whether ``midstream verify`` can read the results."""
        return self.is_file or self.is_delta

    @property
    def delta_options(self) -> dict[str, Any]:
        """The options of ``write_delta``."""
        columns = self.options.get("partition_by", "")
        return {
            "partition_by": [name.strip() for name in columns.split(",") if name.strip()],
            "properties": {name: value for name, value in self.options.items() if name.startswith("delta.")},
            "storage_options": {
                name.removeprefix(_STORAGE): value for name, value in self.options.items() if name.startswith(_STORAGE)
            },
        }

    @property
    def may_append(self) -> bool:
        """Whether a table that has the results of another run may be written to."""
        return self.options.get("append", "false").lower() == "true"

    @property
    def shown(self) -> str:
        return self.format if self.path is None else f"{self.format}:{self.path}"

    @property
    def reading_options(self) -> dict[str, str]:
        """The options with which Spark reads back the results unchanged."""
        return {**_READ_AGAIN.get(self.format, {}), **self.options}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_sink(text: str, options: Sequence[str]) -> Sink:
    """Parse ``--sink`` and ``--sink-option``."""
    chosen: dict[str, str] = {}
    for option in options:
        key, found, value = option.partition("=")
        if not found or not key:
            raise BadArgument(f'cannot read --sink-option "{option}"', hint="Write --sink-option key=value.")
        chosen[key] = value
    matched = re.fullmatch(r"([A-Za-z][\w.-]*):(.+)", text.strip())
    if matched is None or "://" in matched[0][: len(matched[1]) + 3]:
        name = text.strip().rstrip(":")
        if os.sep in text:
            raise BadArgument(f'--sink "{text}" has no format', hint=f"Write --sink delta:{text}.")
        if name in (*FILES, "delta"):
            raise BadArgument(f'--sink "{text}" has no directory', hint=f"Write --sink {name}:DIR.")
        if text == "console":
            chosen.setdefault("truncate", "false")
        return Sink(text, None, chosen)
    format_, path = matched[1], matched[2]
    if format_ == "kafka":
        refusal, hint = f'--sink "{text}" names no topic', "Write --sink kafka:localhost:9092/results."
        return Sink(format_, checked_topic(path, refusal, hint), chosen)
    if format_ == "delta":
        _check_delta_options(chosen)
    if not is_remote(path):
        path = os.path.abspath(os.path.expanduser(path))
        if os.path.isfile(path):
            raise PathProblem(f"the sink {path} is a file", hint="Use a directory; results are written as files in it.")
    for name, value in _DEFAULTS.get(format_, {}).items():
        chosen.setdefault(name, value)
    return Sink(format_, path, chosen)


def _check_delta_options(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name == "append":
            if value.lower() not in ("true", "false"):
                raise BadArgument(f'--sink-option append is "{value}"', hint="Write append=true or append=false.")
        elif name != "partition_by" and not name.startswith(("delta.", _STORAGE)):
            raise BadArgument(
                f'a Delta sink has no option "{name}"',
                detail="It has partition_by=COLUMN,..., append=true, table properties (delta.NAME=VALUE) and storage "
                "options (storage.NAME=VALUE).",
                hint=did_you_mean(name, ["partition_by", "append"]),
            )


def check_names(sink: Sink, names: Sequence[str]) -> None:
    """Refuse columns that differ only in case: Spark would write them to files, but could not read them back."""
    by_lower: dict[str, list[str]] = {}
    for name in names:
        by_lower.setdefault(name.lower(), []).append(name)
    alike = next((same for same in by_lower.values() if len(same) > 1), None)
    if sink.is_file and alike is not None:
        raise DuplicateName(
            f"files cannot have two columns with the names {quoted(alike)}",
            detail="Spark ignores the case of column names.",
            hint="Give them different names in the select list: expression AS name.",
        )


def _local_names(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def check_unused(sink: Sink, names_in: Callable[[str], list[str]] = _local_names) -> None:
    """Refuse to start a new run with a directory that another run has written to, if it can be inspected.

    Spark numbers the batches in a directory. The first batches of a new query would seem to be there already, and their
    results would be lost silently. To a table they would be added: everything would be there twice.
    """
    if sink.is_delta:
        _check_unused_table(sink)
    # A run that was interrupted before its first batch leaves a log without entries.
    log = names_in(f"{sink.path}/_spark_metadata") if sink.is_file and sink.path is not None else []
    if any(not name.startswith(".") for name in log):
        raise PathProblem(
            f"the sink {sink.path} already has the results of another run",
            detail="The checkpoint is new, so this run starts at the first row.",
            hint="Use another directory, remove this one, or resume the run that wrote it.",
        )


def _check_unused_table(sink: Sink) -> None:
    from midstream.delta.commits import epoch_of
    from midstream.delta.location import TableLocation
    from midstream.delta.table import open_table

    table = open_table(TableLocation.of(sink.path or "", sink.delta_options["storage_options"]))
    if table is not None and epoch_of(table) and not sink.may_append:
        raise PathProblem(
            f"the table {sink.path} already has the results of another run",
            detail="The checkpoint is new, so this run starts at the first row.",
            hint="Use another table, resume the run that wrote it, or add to it with --sink-option append=true.",
        )
