"""Streams as the command line names them: what to read, and how.

    orders=data/orders          a directory, a file or a glob; the format follows from the files' names
    orders=json:data/orders     the same with its format, for a directory without files yet
    orders=data/table           a Delta table on this machine, or delta:data/table
    orders=kafka:HOST:9092/TOPIC  messages of a Kafka topic, with --option orders.payload=json, avro or raw
    orders=rate                 any other format that Spark can read as a stream, with --option orders.key=value

Rows that do not fit the columns end the query (``mode=FAILFAST``) instead of becoming NULL; ``--option
orders.mode=PERMISSIVE`` is Spark's own default. A CSV file has a header unless a schema is given whose names its first
line does not have; a header is compared with the schema. Each of these is an option of Spark's that can be set.

>>> stream_sources(["clicks=rate"], options=["clicks.rowsPerSecond=5"], lateness=["30s"])[0].options
{'rowsPerSecond': '5'}
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from midstream.cli.places import checked_topic, is_remote
from midstream.cli.schemas import schema_from_ddl
from midstream.delta.added_files import table_schema
from midstream.delta.log_entries import is_table
from midstream.errors import BadArgument, BadStreamDeclaration, PathProblem, TableMismatch, did_you_mean, quoted
from midstream.runtime.data_files import data_files, without_patterns

__all__ = [
    "StreamSource",
    "choose_event_time",
    "local_files",
    "read_dead_letters",
    "read_lateness",
    "stream_sources",
]

FORMATS = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc"}
"""File formats by file extension."""
ENDLESS = ("rate", "rate-micro-batch", "socket")
"""Formats for trying things out, which never end."""
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy"}
_EVENT_TIMES = ("ts", "time", "timestamp", "event_time", "valid_from")
"""Default names of an event-time column; the last one is that of another query's results."""
_UNITS = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "m": "minutes",
    "min": "minutes",
    "h": "hours",
    "hr": "hours",
    "d": "days",
    "w": "weeks",
}
_OF_KAFKA = ("payload", "avroSchema", "select")
"""Options of a Kafka stream that are not Spark's."""
_MOST_DIGITS = 18
_BY_SPARK = (
    "Spark's Delta package reads such tables: NAME=org.apache.spark.sql.delta.sources.DeltaDataSource:PATH, with "
    "--conf spark.jars.packages=io.delta:..."
)
_LOOKED_AT = 10_000
"""Maximum number of files of a directory that are inspected for the format."""


@dataclass(frozen=True)
class StreamSource:
    """One stream: its source, and the columns, event time and lateness that the user declared."""

    name: str
    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    """Spark DDL; None: inferred."""
    event_time: str | None = None
    lateness: str | None = None
    topic: str | None = None
    """Of a Kafka topic: ``HOST:PORT/TOPIC``."""
    read_by: Literal["spark", "midstream"] = "spark"
    """Whose source reads it; a run that has begun keeps the one that it began with."""

    @property
    def is_file(self) -> bool:
        return self.path is not None

    @property
    def is_table(self) -> bool:
        """Whether midstream reads it by the log of a Delta table."""
        return self.format == "delta" and self.read_by == "midstream"

    @property
    def has_end(self) -> bool:
        """Whether the stream is finite."""
        return self.format not in ENDLESS

    @property
    def shown(self) -> str:
        return f"{self.format}:{self.topic or self.path}"

    @property
    def payload(self) -> str:
        """What the values of a topic's messages are."""
        return self.option("payload") or "json"

    @property
    def kafka_options(self) -> dict[str, Any]:
        """The options of ``read_kafka``."""
        own = {name.lower(): name for name in _OF_KAFKA}
        others = {name: value for name, value in self.options.items() if name.lower() not in own}
        return {
            "schema": self.schema if self.payload == "json" else None,
            "payload": self.payload,
            "avro_schema": self.option("avroSchema"),
            "select": self.option("select"),
            "options": others,
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def option(self, name: str) -> str | None:
        """An option's value; Spark ignores the case of option names."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)

    def with_defaults(self) -> StreamSource:
        """With the options that make malformed rows fail instead of becoming NULL; options set by the user are kept."""
        chosen: dict[str, str] = {}
        if self.format in ("csv", "json"):
            chosen["mode"] = "FAILFAST"
        if self.format == "csv":
            has_header = self.option("header")
            if has_header is None:
                has_header = chosen["header"] = "true" if self._has_header() else "false"
            if has_header.lower() == "true":
                chosen["enforceSchema"] = "false"
        if self.path is not None and not is_remote(self.path) and not _is_partitioned(self.path):
            # Otherwise Spark silently skips nested directories.
            chosen["recursiveFileLookup"] = "true"
        missing = {name: value for name, value in chosen.items() if self.option(name) is None}
        return replace(self, options={**self.options, **missing})

    def with_reader(self) -> StreamSource:
        """As midstream reads it itself, if it can: parquet files or a Delta table on this machine, as they are."""
        if self.path is None or is_remote(self.path):
            return self
        self._check_is_table()
        known = {"recursivefilelookup", "maxfilespertrigger"}
        is_plain = self.format in ("parquet", "delta") and {name.lower() for name in self.options} <= known
        if not is_plain:
            return self
        if self.format == "delta":
            return replace(self, read_by="midstream")
        if _is_partitioned(self.path):
            return self
        if (self.option("recursiveFileLookup") or "").lower() != "true":
            return self
        return replace(self, read_by="midstream")

    def _check_is_table(self) -> None:
        """Refuse, before Spark is started, a table that midstream cannot read, and one that is not named as such."""
        assert self.path is not None, "the stream is of files"
        if self.format == "delta":
            if not is_table(self.path):
                raise PathProblem(
                    f'there is no Delta table in "{self.path}", which stream "{self.name}" is to read',
                    hint=f"Create the table first. If these are parquet files, write {self.name}=parquet:{self.path}.",
                )
            try:
                table_schema(self.path)
            except TableMismatch as problem:
                raise TableMismatch(problem.message, detail=problem.detail, hint=problem.hint and _BY_SPARK) from None
        elif self.format in FORMATS.values() and is_table(self.path):
            raise BadArgument(
                f'"{self.path}" of stream "{self.name}" is a Delta table',
                detail="Only its log says which of its files are part of it.",
                hint=f"Write {self.name}=delta:{self.path}.",
            )

    @property
    def files_per_batch(self) -> int | None:
        """How many files a micro-batch takes at the most, if that was said."""
        text = self.option("maxFilesPerTrigger")
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) == 0:
            raise BadArgument(f'"{self.name}.maxFilesPerTrigger" is "{text}"', hint="Give a number, 1 or more.")
        return int(text)

    def place_of_stream(self) -> tuple[str | None, dict[str, str]]:
        """The path and options with which Spark reads the files as a stream; a single file by directory and name."""
        if self.path is None or is_remote(self.path) or not os.path.isfile(self.path):
            return self.path, dict(self.options)
        folder, name = os.path.split(self.path)
        return folder, {**self.options, "pathGlobFilter": without_patterns(name), "recursiveFileLookup": "false"}

    def _has_header(self) -> bool:
        """Whether the first line of the first file has the names of the schema; without a schema it must have names."""
        first = next(local_files(self.path or ""), None)
        if self.schema is None or first is None:
            return True
        expected = [name.lower() for name in schema_from_ddl(self.schema, self.name).names]
        opened = gzip.open if first.suffix == ".gz" else open
        try:
            with opened(first, "rt", encoding=self.option("encoding") or "utf-8", newline="") as lines:
                line = next(csv.reader(lines, delimiter=self.option("sep") or self.option("delimiter") or ","), [])
        except (UnicodeDecodeError, csv.Error, TypeError, LookupError):
            return False
        return [name.strip().lower().lstrip("\ufeff") for name in line] == expected


def stream_sources(
    streams: Sequence[str],
    options: Sequence[str] = (),
    schemas: Sequence[str] = (),
    event_times: Sequence[str] = (),
    lateness: Sequence[str] = (),
) -> list[StreamSource]:
    """Parse the options that describe streams; each is ``name=value`` or, where it makes sense, a value for all."""
    places: dict[str, str] = {}
    for text in streams:
        name, found, place = text.partition("=")
        if not found or not name.strip() or not place.strip():
            raise BadArgument(
                f'cannot read --stream "{text}"', hint="Write a name and a place: --stream orders=data/orders."
            )
        if name.strip() in places:
            raise BadArgument(f'--stream names "{name.strip()}" twice', hint="Each stream has one source.")
        places[name.strip()] = place.strip()
    if not places:
        raise BadArgument("--stream is missing", hint="Set where rows come from: --stream orders=data/orders.")
    of_stream = _options_by_stream(options, places)
    schema_of = _by_stream("--schema", schemas, places, is_for_all_too=len(places) == 1)
    event_time_of = _by_stream("--event-time", event_times, places, is_for_all_too=True)
    lateness_of = _by_stream("--lateness", lateness, places, is_for_all_too=True)
    made = []
    for name, place in places.items():
        is_topic = place.startswith("kafka:")
        format_, path = ("kafka", None) if is_topic else _place(name, place)
        source = StreamSource(
            name,
            format_,
            path,
            of_stream[name],
            schema_of.get(name),
            event_time_of.get(name),
            lateness_of.get(name),
            place.removeprefix("kafka:") if is_topic else None,
        )
        if is_topic:
            source = _kafka_source(source)
        if source.schema is not None:
            schema_from_ddl(source.schema, name)
        if source.lateness is not None:
            read_lateness(source.lateness, name)
        made.append(source.with_defaults().with_reader())
    return made


def choose_event_time(stream: str, kinds: Mapping[str, str], chosen: str | None, otherwise: str | None = None) -> str:
    """The event time column; ``kinds`` says of each column whether it is "timestamp", "integer" or something else.

    ``otherwise`` is the column to take if none of these can be meant.

    >>> choose_event_time("orders", {"id": "integer", "placed": "timestamp"}, None)
    'placed'
    """
    if chosen is not None:
        return chosen
    timestamps = [name for name, kind in kinds.items() if kind == "timestamp"]
    if len(timestamps) == 1:
        return timestamps[0]
    called = {name.lower(): name for name, kind in kinds.items() if kind in ("timestamp", "integer")}
    for usual in _EVENT_TIMES:
        if usual in called:
            return called[usual]
    if otherwise is not None and not timestamps:
        return otherwise
    raise BadStreamDeclaration(
        f'cannot choose the event-time column of stream "{stream}"',
        detail=f"The stream has the columns {quoted(kinds)}.",
        hint=f"Set --event-time {stream}=COLUMN, a timestamp or integer column.",
    )


def read_lateness(text: str, stream: str) -> int | str:
    """Ticks, or a duration as text that a stream's declaration accepts.

    >>> read_lateness("30", "orders"), read_lateness("5min", "orders"), read_lateness("2 hours", "orders")
    (30, '5 minutes', '2 hours')
    """
    matched = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if matched is None:
        raise BadArgument(
            f'cannot read lateness "{text}" of stream "{stream}"',
            hint="Write 30s or 5 minutes; a plain number where event times are numbers.",
        )
    number, unit = matched[1], matched[2].lower()
    if len(number) > _MOST_DIGITS:
        raise BadArgument(f'the lateness of stream "{stream}" has {len(number):,} digits', hint="Write 30s, or 1h.")
    if not unit:
        return int(number)
    return f"{number} {_UNITS.get(unit, _UNITS.get(unit.removesuffix('s'), unit))}"


def local_files(path: str) -> Iterator[Path]:
    """The data files of a directory, file or glob on this machine, sorted by name within each directory."""
    return iter(()) if is_remote(path) else map(Path, data_files(path))


def read_dead_letters(place: str | None, sources: Sequence[StreamSource]) -> str | None:
    """Parse ``--dead-letters``: a directory, or a topic."""
    if place is None:
        return None
    if all(source.topic is None for source in sources):
        raise BadArgument("--dead-letters is for streams of Kafka topics", hint="Leave it out.")
    if place.startswith("kafka:"):
        hint = "Write --dead-letters kafka:localhost:9092/bad, or a directory."
        topic = checked_topic(place.removeprefix("kafka:"), f'--dead-letters "{place}" names no topic', hint)
        return f"kafka:{topic}"
    if is_remote(place):
        return place
    path = os.path.abspath(os.path.expanduser(place))
    if os.path.isfile(path):
        raise PathProblem(f"{path} is a file", hint="Dead letters are written as files in a directory.")
    return path


def _kafka_source(source: StreamSource) -> StreamSource:
    """A stream of a Kafka topic, checked; an Avro schema may be given as the file that has it."""
    topic = checked_topic(
        source.topic or "",
        f'cannot read the topic "{source.topic}" of stream "{source.name}"',
        f"Write brokers and a topic: {source.name}=kafka:localhost:9092/{source.name}.",
    )
    if source.payload == "json" and source.schema is None:
        raise BadArgument(
            f'the columns of stream "{source.name}" are not known',
            detail="Its messages are JSON.",
            hint=f'Declare them: --schema {source.name}="ts timestamp, id long"; or set what messages are: '
            f"--option {source.name}.payload=avro, or raw.",
        )
    options = dict(source.options)
    for name, value in source.options.items():
        if name.lower() == "avroschema" and not value.lstrip().startswith("{"):
            try:
                options[name] = Path(value).read_text()
            except OSError as problem:
                raise PathProblem(
                    f'cannot read the Avro schema "{value}" of stream "{source.name}": {problem.strerror}',
                    hint="Give a file, or the schema itself as JSON.",
                ) from None
    return replace(source, topic=topic, options=options)


def _is_partitioned(path: str) -> bool:
    """Whether directories are named like those of a partitioned table, ``day=2024-01-31``."""
    return any("=" in name for found in glob.glob(path) or [path] for _, inside, _ in os.walk(found) for name in inside)


def _place(name: str, place: str) -> tuple[str, str | None]:
    """The format and, for files, the path."""
    matched = re.fullmatch(r"(?!hdfs:|file:)([A-Za-z][\w.-]*):(?!//)(.+)", place)
    if matched is not None:
        return FORMATS.get(matched[1].lower(), matched[1]), _checked_path(name, matched[2])
    looks_like_a_path = os.sep in place or glob.has_magic(place) or os.path.exists(place) or _format_of(place)
    if not looks_like_a_path:
        return place, None
    path = _checked_path(name, place)
    return _found_format(name, path), path


def _checked_path(name: str, path: str) -> str:
    if is_remote(path):
        return path
    absolute = os.path.abspath(os.path.expanduser(path))
    if glob.has_magic(absolute):
        if not glob.glob(absolute, recursive=True):
            raise PathProblem(f'no file matches the path "{path}" of stream "{name}"', detail=f"Looked for {absolute}.")
    elif not os.path.exists(absolute):
        parent = Path(absolute).parent
        beside = sorted(entry.name for entry in parent.iterdir()) if parent.is_dir() else []
        raise PathProblem(
            f'the path "{path}" of stream "{name}" does not exist',
            detail=f"Looked for {absolute}.",
            hint=did_you_mean(Path(absolute).name, beside)
            or "If its files arrive later, create the directory first and name their format: json:DIR.",
        )
    elif not os.access(absolute, os.R_OK):
        raise PathProblem(
            f'cannot read the path "{path}" of stream "{name}": permission denied', hint="Check its permissions."
        )
    return absolute


def _found_format(name: str, path: str) -> str:
    """The format, from the extensions of the files."""
    if is_table(path):
        return "delta"
    by_itself = _format_of(path)
    found = {_format_of(file.name): file.name for file in islice(local_files(path), _LOOKED_AT)}
    if by_itself is not None and not found:
        return by_itself
    if len(found) == 1 and None not in found:
        return str(next(iter(found)))
    known = ", ".join(FORMATS)
    if not found:
        problem, detail = f'"{path}" of stream "{name}" has no files', None
    elif len(found) == 1:
        problem, detail = f'"{path}" of stream "{name}" is of an unknown format', f"It has {found[None]}."
    else:
        problem = f'the files of stream "{name}" are of several formats'
        detail = f"{path} has {quoted(found.values())}."
    raise BadArgument(
        problem, detail=detail, hint=f"Name the format: {name}=json:{path} (known by their ending: {known})."
    )


def _format_of(path: str) -> str | None:
    name = Path(path)
    suffix = Path(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix
    return FORMATS.get(suffix.removeprefix(".").lower())


def _options_by_stream(options: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """``orders.key=value`` for one stream, ``key=value`` for all."""
    chosen: dict[str, dict[str, str]] = {name: {} for name in names}
    for text in options:
        key, found, value = text.partition("=")
        if not found or not key:
            raise BadArgument(
                f'cannot read --option "{text}"', hint="Write --option orders.header=false, or header=false for all."
            )
        name, dot, rest = key.partition(".")
        for stream in [name] if dot and name in chosen else list(chosen):
            chosen[stream][rest if dot and name in chosen else key] = value
    return chosen


def _by_stream(option: str, texts: Iterable[str], names: Mapping[str, str], is_for_all_too: bool) -> dict[str, str]:
    """The values of an option by stream: ``orders=value``, or a bare value for all that have none of their own."""
    own: dict[str, str] = {}
    for_all: str | None = None
    for text in texts:
        name, found, value = text.partition("=")
        if found and name.strip() in names:
            own[name.strip()] = value.strip()
        elif found and re.fullmatch(r"\s*\w+\s*", name):
            raise BadArgument(
                f'{option} "{text}" names "{name.strip()}", which is not a stream',
                detail=f"The streams are {quoted(names)}.",
                hint=did_you_mean(name.strip(), names),
            )
        elif is_for_all_too:
            for_all = text.strip()
        else:
            raise BadArgument(f'cannot read {option} "{text}"', hint=f"Write {option} STREAM=VALUE.")
    return own if for_all is None else {name: own.get(name, for_all) for name in names}
