"""What Spark's exceptions mean to the user of the command line.

A Spark exception is a page of text: a message for each layer it passed through, with the reason somewhere in the
middle. This module extracts the reason and turns it into a midstream error with one sentence, the facts, and what to
do. Unknown reasons keep Spark's own message, without the stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from midstream import errors
from midstream.errors import (
    BadArgument,
    CheckpointMismatch,
    JavaMissing,
    KafkaUnreachable,
    MalformedRow,
    MidstreamError,
    MissingColumn,
    PathProblem,
    PortInUse,
    SparkFailed,
    UnknownFormat,
    UnreadableFile,
)

__all__ = ["explain_spark_failure", "is_of_spark"]

_FILE = r"(?:while reading file|Could not read footer for file):?\s*(?:file:)?(\S+)"
_PORTS = {
    "SparkUI": "spark.ui.port",
    "org.apache.spark.network.netty.NettyBlockTransferService": "spark.blockManager.port",
}
"""Settings of ports other than the driver's, by Spark's name of the service."""
_SHOWN_CHARACTERS = 400


def is_of_spark(problem: BaseException) -> bool:
    """Whether pyspark, or the bridge to Java below it, raised this."""
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(problem).__mro__)


def explain_spark_failure(problem: BaseException, log: Path | None = None) -> MidstreamError:
    """The midstream error for a Spark exception; ``log`` has Java's output during startup."""
    text = _all_text(problem)
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway process exited" in text:
        return _java_problem(log)
    for explain in _KNOWN:
        found = explain(text)
        if found is not None:
            return found
    return SparkFailed(
        f"Spark failed: {_reason(text)}",
        hint="--debug shows everything." + (f" Spark's own log is {log}." if log is not None and log.exists() else ""),
    )


def _all_text(problem: BaseException) -> str:
    """The message, the messages below it and Java's stack trace, where the causes are."""
    parts = []
    pending: list[BaseException | None] = [problem]
    while pending and (one := pending.pop()) is not None:
        # str() of a captured Java exception asks the JVM for its text, which may have exited.
        said = getattr(one, "_desc", None) or str(one)
        parts += [f"{type(one).__name__}: {said}", str(getattr(one, "_stackTrace", None) or "")]
        following = getattr(one, "_cause", None) or one.__cause__
        pending.append(following if isinstance(following, BaseException) else None)
    return "\n".join(parts)


def _own_error(text: str) -> MidstreamError | None:
    """One of midstream's errors, raised in a Python worker."""
    matched = re.search(r"midstream\.errors\.(\w+): \[M\d{4}\] (.*)((?:\n  (?:detail|hint): .*)*)", text)
    kind = getattr(errors, matched[1], None) if matched else None
    if matched is None or kind is None:
        return None
    more = dict(re.findall(r"  (detail|hint): (.*)", matched[3]))
    raised: MidstreamError = kind(matched[2], **more)
    return raised


def _malformed_row(text: str) -> MidstreamError | None:
    malformed = r"Malformed records are detected in (?:record parsing|schema inference)(?:: *(.*?)\s*\.\s)?"
    matched = re.search(malformed, text)
    header = re.search(r"CSV header does not conform to the schema\.\s*Header: (.*)\s*Schema: (.*)", text)
    lengths = re.search(r"Number of column in CSV header is not equal to number of fields in the schema", text)
    if header or lengths:
        where = re.search(r"CSV file: (?:file:)?(\S+)", text)
        return MissingColumn(
            "the header of a CSV file does not match the schema",
            detail=(f"Its header is {header[1].strip()}, the schema {header[2].strip()}. " if header else "")
            + (f"The file is {_path(where[1])}." if where else ""),
            hint="Declare the file's columns with --schema, in their order in the file.",
        )
    if matched is None:
        return None
    place = re.search(_FILE, text)
    value = re.search(r"For input string: (\".*\")", text)
    record = f"The row was read as {_short(matched[1])}" if matched[1] else None
    if record is not None:
        record += f": {_short(value[1])} cannot be read." if value else "."
    return MalformedRow(
        "a row does not match its stream's columns" + (f" in {_path(place[1])}" if place else ""),
        detail=record,
        hint="Fix the row, or set other types with --schema. With --option STREAM.mode=PERMISSIVE, values that cannot "
        "be read are NULL.",
    )


def _unreadable_file(text: str) -> MidstreamError | None:
    matched = re.search(_FILE, text) or re.search(r"(?:file:)?(/\S+) is not a Parquet file", text)
    if matched is None:
        return None
    reasons = re.findall(r"Caused by: [\w.$]+(?:Exception|Error): (.*)", text) or [""]
    missing = "FileNotFound" in text or "FILE_NOT_EXIST" in text
    if missing:
        return UnreadableFile(
            f"the file {_path(matched[1])} is gone", hint="Keep the files of a stream until they have been read."
        )
    return UnreadableFile(
        f"cannot read the file {_path(matched[1])}",
        detail=f"{_short(reasons[-1]).rstrip('.')}." if reasons[-1] else None,
        hint="Fix or remove it, then resume; --option STREAM.ignoreCorruptFiles=true skips such files.",
    )


def _wrong_path(text: str) -> MidstreamError | None:
    matched = re.search(r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:)?(\S+?)\.(?:\s|$)", text)
    return PathProblem(f"the path {matched[1]} does not exist") if matched else None


def _no_columns(text: str) -> MidstreamError | None:
    if "[UNABLE_TO_INFER_SCHEMA]" not in text:
        return None
    return BadArgument(
        "cannot infer the columns of a stream: there are no files yet",
        hint='Declare them: --schema STREAM="ts timestamp, id long".',
    )


def _no_schema(text: str) -> MidstreamError | None:
    matched = re.search(r"\[(?:PARSE_SYNTAX_ERROR|UNSUPPORTED_DATATYPE)\] (.*)", text)
    return BadArgument(f"Spark cannot read a schema: {_short(matched[1])}") if matched else None


def _unknown_format(text: str) -> MidstreamError | None:
    matched = re.search(r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\S+?)\.(?:\s|$)", text)
    if matched is None:
        return None
    return UnknownFormat(
        f'"{matched[1]}" is neither a path that exists nor a format that Spark knows',
        hint=f"Check the spelling. A path needs a format, as in --sink delta:{matched[1]}. Formats in separate "
        "packages need --conf spark.jars.packages=...",
    )


def _no_topic(text: str) -> MidstreamError | None:
    """Kafka: a topic that does not exist, or brokers that do not answer."""
    if "org.apache.kafka" not in text and "kafka010" not in text:
        return None
    if "UnknownTopicOrPartition" in text:
        matched = re.search(r"Topic ([\w.-]+) not present|partitions? ([\w.-]+)-\d+", text)
        named = f'the topic "{matched[1] or matched[2]}"' if matched else "a topic"
        return KafkaUnreachable(f"{named} does not exist", hint="Create it, then start the query again.")
    if "Some data may have been lost" in text or "KAFKA_DATA_LOSS" in text:
        return UnreadableFile(
            "messages that the query has not read yet are gone from their topic",
            detail=_reason(text),
            hint="Keep messages until they have been read; --option STREAM.failOnDataLoss=false goes on without them.",
        )
    if re.search(r"TimeoutException|No resolvable bootstrap urls|DisconnectException", text) is None:
        return None
    return KafkaUnreachable(
        "no Kafka broker answers",
        detail=_reason(text),
        hint="Check the address, HOST:PORT/TOPIC, and that the broker runs; then resume.",
    )


def _port_in_use(text: str) -> MidstreamError | None:
    if "java.net.BindException" not in text:
        return None
    service = re.search(r"Service '?([\w.]+)'? (?:could not bind|failed)", text)
    setting = _PORTS.get(service[1] if service else "", "spark.driver.port")
    return PortInUse(
        f"a port that Spark needs is in use{f' (of {service[1]})' if service else ''}",
        hint=f"Stop the process that uses it, or let the system choose another: --conf {setting}=0.",
    )


def _no_cluster(text: str) -> MidstreamError | None:
    if "All masters are unresponsive" not in text and "Could not parse Master URL" not in text:
        return None
    matched = re.search(r"Could not parse Master URL: '?([^'\s]+)", text)
    return SparkFailed(
        f'"{matched[1]}" is not a Spark master' if matched else "no Spark master answers",
        hint="Use a running one: --master spark://HOST:7077, or --master 'local[2,4]' for this machine only.",
    )


def _other_checkpoint(text: str) -> MidstreamError | None:
    signs = (
        "sources in the checkpoint offsets and now there are",
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        "STATE_STORE_OPERATOR_OUT_OF_ORDER",
        "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
        # An offset of another kind of source, or of another directory.
        "FileStreamSourceOffset",
        "org.json4s.MappingException",
        "Wrong basePath",
    )
    if not any(sign in text for sign in signs):
        return None
    return CheckpointMismatch(
        "the checkpoint belongs to another query", hint="Use the checkpoint this query was started with, or a new one."
    )


def _concurrent(text: str) -> MidstreamError | None:
    if "CONCURRENT_STREAM_LOG_UPDATE" not in text and "Multiple streaming queries are concurrently using" not in text:
        return None
    return errors.AlreadyRunning("another query uses the same checkpoint", hint="Stop one of them.")


def _out_of_memory(text: str) -> MidstreamError | None:
    if "java.lang.OutOfMemoryError" not in text:
        return None
    return SparkFailed("Spark's Java ran out of memory", hint="Increase it: --conf spark.driver.memory=4g.")


def _gone(text: str) -> MidstreamError | None:
    is_refused = re.search(r"^ConnectionRefusedError|Py4JNetworkError|Answer from Java side is empty", text, re.M)
    if is_refused is None:
        return None
    return SparkFailed("Spark's Java process has exited", hint="It may have been killed, or run out of memory.")


_KNOWN: tuple[Callable[[str], MidstreamError | None], ...] = (
    _own_error,
    _no_topic,
    _malformed_row,
    _wrong_path,
    _unreadable_file,
    _no_columns,
    _unknown_format,
    _port_in_use,
    _no_cluster,
    _other_checkpoint,
    _concurrent,
    _out_of_memory,
    _no_schema,
    _gone,
)
"""Tried in this order: causes before their consequences."""


def _java_problem(log: Path | None) -> MidstreamError:
    """Why Java did not start."""
    said = log.read_text(errors="replace") if log is not None and log.exists() else ""
    port = _port_in_use(said)
    if port is not None:
        return port
    if "UnsupportedClassVersionError" in said:
        return JavaMissing("the installed Java is too old", hint="Spark needs Java 17 or later: set JAVA_HOME.")
    if "JAVA_HOME is not set" in said or re.search(r"java'?: (?:No such file or directory|.*not found)", said):
        return JavaMissing(
            "Java is not installed, or not found",
            detail="Looked at JAVA_HOME and the PATH.",
            hint="Spark needs Java 17 or later: install it, or set JAVA_HOME to its directory.",
        )
    unresolved = re.search(r"unresolved dependency: ([^\s:]+(?:[#;][^\s:]+)*)", said)
    if unresolved is not None:
        return BadArgument(
            f"the package {unresolved[1]} could not be found",
            hint="Check --conf spark.jars.packages: it takes GROUP:NAME:VERSION and needs a reachable repository. Jars "
            "on this machine are named by --conf spark.jars=FILE,...; for Kafka see docs/kafka.md.",
        )
    lines = [line.strip() for line in said.splitlines() if re.search(r"Error|Exception|error:", line)]
    return SparkFailed(
        "Spark's Java process exited during startup",
        detail=f"It said: {_short(lines[0])}" if lines else None,
        hint="Check the --conf settings; --debug shows its whole output.",
    )


def _reason(text: str) -> str:
    """The innermost reason in Spark's own words: the last message with a condition, else the last cause."""
    conditions = re.findall(r"\[([A-Z][A-Z0-9_.]+)\] (.*)", text)
    conditions = [said for name, said in conditions if not name.startswith(("STREAM_FAILED", "FAILED_READ_FILE"))]
    causes = re.findall(r"Caused by: [\w.$]+: (.*)", text)
    said = conditions[-1] if conditions else causes[-1] if causes else text.strip().partition("\n")[0]
    return _short(re.sub(r"\s*SQLSTATE: \w+", "", said).strip() or "no reason given")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _path(text: str) -> str:
    """A path from a sentence, without punctuation."""
    return re.sub(r"^/+", "/", text.rstrip(".,;:"))
