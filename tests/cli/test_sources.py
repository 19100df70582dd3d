"""What the command line says of streams and sinks, and what it means."""

import gzip
import os
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from midstream.cli.saved_run import RunFile
from midstream.cli.sinks import Sink, check_names, check_unused, read_sink
from midstream.cli.sources import choose_event_time, read_lateness, stream_sources
from midstream.errors import (
    BadArgument,
    BadStreamDeclaration,
    DuplicateName,
    MidstreamError,
    PathProblem,
    TableMismatch,
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, text in {
        "orders/a.csv": "ts,id\n1,2\n",
        "clicks/day=1/a.json.gz": None,
        "clicks/_tmp.parquet": "",
        "mixed/a.csv": "",
        "mixed/b.json": "",
        "other/a.xyz": "",
        "one.jsonl": "{}",
    }.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with gzip.open(path, "wt") if text is None else open(path, "w") as file:
            file.write(text or "{}")
    os.mkdir("empty")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "format_", "path"),
    [
        ("orders", "csv", "orders"),
        ("orders/*.csv", "csv", "orders/*.csv"),
        ("clicks", "json", "clicks"),
        ("one.jsonl", "json", "one.jsonl"),
        ("json:empty", "json", "empty"),
        ("rate", "rate", None),
        ("s3a://bucket/x.parquet", "parquet", "s3a://bucket/x.parquet"),
        ("delta:s3a://bucket/x", "delta", "s3a://bucket/x"),
        ("parquet:s3a://bucket/x", "parquet", "s3a://bucket/x"),
    ],
)
def test_a_place_is_a_path_or_a_format(data, place, format_, path):
    (source,) = stream_sources([f"s={place}"])
    local = path is not None and "://" not in path
    assert (source.format, source.path) == (format_, str(data / path) if local else path)


@pytest.mark.parametrize(
    ("streams", "options", "problem"),
    [
        (["orders"], {}, 'cannot read --stream "orders"'),
        ([], {}, "--stream is missing"),
        (["s=rate", "s=rate"], {}, 'names "s" twice'),
        (["s=mixed"], {}, "of several formats"),
        (["s=other"], {}, "unknown format"),
        (["s=empty"], {}, "has no files"),
        (["s=delta:empty"], {}, 'there is no Delta table in .*empty", which stream "s" is to read'),
        (["s=ordes/"], {}, 'does not exist.*Did you mean "orders"'),
        (["s=orders/*.json"], {}, "no file matches the path"),
        (["s=rate"], {"options": ["x"]}, 'cannot read --option "x"'),
        (["s=rate"], {"schemas": ["t=ts long"]}, 'names "t", which is not a stream'),
        (["s=rate"], {"schemas": ["ts lonk"]}, "there is no type|cannot read the schema"),
        (["s=rate"], {"schemas": ["ts"]}, "cannot read the schema"),
        (["s=rate"], {"lateness": ["soon"]}, 'cannot read lateness "soon"'),
    ],
)
def test_what_cannot_be_meant_is_refused_and_said_how_to_write(data, streams, options, problem):
    with pytest.raises((BadArgument, PathProblem), match=f"(?s){problem}") as refused:
        stream_sources(streams, **options)
    assert refused.value.hint or refused.value.detail


def test_options_are_for_one_stream_or_for_all(data):
    sources = stream_sources(
        ["a=rate", "b=rate"],
        options=["rowsPerSecond=5", "b.rowsPerSecond=7", "kafka.group.id=x"],
        schemas=["b=ts long"],
        event_times=["ts", "b=time"],
        lateness=["a=30"],
    )
    assert [dict(source.options) for source in sources] == [
        {"rowsPerSecond": "5", "kafka.group.id": "x"},
        {"rowsPerSecond": "7", "kafka.group.id": "x"},
    ]
    assert [(source.schema, source.event_time, source.lateness) for source in sources] == [
        (None, "ts", "30"),
        ("ts long", "time", None),
    ]


@pytest.mark.parametrize(
    ("schema", "given", "header"),
    [
        (None, [], "true"),
        ("ts long, id long", [], "true"),
        ("TS long, Id long", [], "true"),
        ("ts long, key long", [], "false"),
        ("ts long, id long", ["HEADER=false"], None),
    ],
)
def test_a_csv_file_has_a_header_unless_its_first_line_does_not_fit_the_schema(data, schema, given, header):
    (source,) = stream_sources(["s=orders"], options=given, schemas=[schema] if schema else [])
    assert dict(source.options).get("header") == header
    assert source.option("mode") == "FAILFAST"
    # With a header, Spark compares it with the schema.
    assert source.option("enforceSchema") == ("false" if source.option("header") == "true" else None)


def test_malformed_rows_may_be_null_if_the_user_says_so(data):
    (source,) = stream_sources(["s=one.jsonl"], options=["s.mode=PERMISSIVE"])
    assert dict(source.options) == {"mode": "PERMISSIVE", "recursiveFileLookup": "true"}


def test_the_event_time_is_the_only_timestamp_or_a_column_with_a_usual_name():
    assert choose_event_time("s", {"id": "integer", "at": "timestamp"}, None) == "at"
    assert choose_event_time("s", {"a": "timestamp", "b": "timestamp", "Time": "integer"}, None) == "Time"
    assert choose_event_time("s", {"a": "timestamp"}, "x") == "x"
    with pytest.raises(
        BadStreamDeclaration, match=r'(?s)cannot choose the event-time column.*"a", "ts".*--event-time s=COLUMN'
    ):
        choose_event_time("s", {"a": "integer", "ts": "other"}, None)


@pytest.mark.parametrize(
    ("text", "lateness"), [("0", 0), ("30s", "30 seconds"), ("5 mins", "5 minutes"), ("2 weeks", "2 weeks")]
)
def test_lateness_is_a_number_or_a_duration(text, lateness):
    assert read_lateness(text, "s") == lateness


def test_sinks_are_a_format_and_a_directory(data):
    assert read_sink("parquet:out", ["compression=zstd"]).path == str(data / "out")
    assert read_sink("console", []).path is None
    assert read_sink("delta:s3a://bucket/x", []).path == "s3a://bucket/x"
    # Spark's own format of times would cut them to milliseconds.
    assert "SSSSSS" in read_sink("json:out", []).options["timestampFormat"]
    for text, problem in [("out/x", "no format"), ("parquet", "no directory"), ("csv:one.jsonl", "is a file")]:
        with pytest.raises(MidstreamError, match=problem):
            read_sink(text, [])


def test_files_have_no_columns_that_spark_takes_for_the_same():
    for names in (["k", "x", "K"], ["x", "x"]):
        with pytest.raises(DuplicateName, match="two columns with the names"):
            check_names(read_sink("parquet:out", []), names)
        check_names(read_sink("console", []), names)
    check_names(read_sink("parquet:out", []), ["k", "x"])


def test_a_new_run_does_not_write_where_another_has(tmp_path):
    """Spark would take the first batches for written, and drop their results."""
    sink = read_sink(f"parquet:{tmp_path / 'out'}", [])
    check_unused(sink)
    log = tmp_path / "out" / "_spark_metadata"
    log.mkdir(parents=True)
    # As of a run that was interrupted before its first batch: what it offers, to resume it, is possible.
    (log / ".0.crc").touch()
    check_unused(sink)
    (log / "0").touch()
    with pytest.raises(PathProblem, match="already has the results of another run"):
        check_unused(sink)


@pytest.mark.parametrize(
    ("place", "options", "read_by"),
    [
        ("parquet:{0}/plain", [], "midstream"),
        ("parquet:{0}/plain", ["s.maxFilesPerTrigger=3"], "midstream"),
        ("parquet:{0}/plain", ["s.mergeSchema=true"], "spark"),
        ("parquet:{0}/plain", ["s.recursiveFileLookup=false"], "spark"),
        ("parquet:{0}/partitioned", [], "spark"),
        ("parquet:s3a://bucket/orders", [], "spark"),
        ("json:{0}/plain", [], "spark"),
        ("rate", [], "spark"),
    ],
)
def test_midstream_reads_plain_parquet_files_itself(tmp_path, place, options, read_by):
    (tmp_path / "plain").mkdir()
    (tmp_path / "partitioned" / "day=2024-01-31").mkdir(parents=True)
    (source,) = stream_sources([f"s={place.format(tmp_path)}"], options)
    assert source.read_by == read_by


@pytest.mark.parametrize("place", ["{0}/table", "delta:{0}/table"])
def test_midstream_reads_delta_tables_itself(tmp_path, place):
    write_deltalake(tmp_path / "table", pa.table({"ts": [1]}))
    (source,) = stream_sources([f"s={place.format(tmp_path)}"])
    assert (source.format, source.read_by, source.path) == ("delta", "midstream", str(tmp_path / "table"))


def test_a_delta_table_is_not_read_as_loose_files(tmp_path):
    """They would have rows that were rewritten twice, and those of attempts that failed."""
    write_deltalake(tmp_path / "table", pa.table({"ts": [1]}))
    with pytest.raises(BadArgument, match=r"(?s)is a Delta table.*Write s=delta:"):
        stream_sources([f"s=parquet:{tmp_path / 'table'}"])


def test_a_table_that_midstream_cannot_read_can_be_left_to_spark(tmp_path):
    write_deltalake(tmp_path / "table", pa.table({"ts": [1], "day": ["x"]}), partition_by=["day"])
    with pytest.raises(TableMismatch, match=r"(?s)partition column.*sql\.delta\.sources\.DeltaDataSource:PATH"):
        stream_sources([f"s={tmp_path / 'table'}"])
    (source,) = stream_sources([f"s=org.apache.spark.sql.delta.sources.DeltaDataSource:{tmp_path / 'table'}"])
    assert source.read_by == "spark"


def test_a_number_of_files_is_a_number(tmp_path):
    (source,) = stream_sources([f"s=parquet:{tmp_path}"], ["s.maxFilesPerTrigger=three"])
    with pytest.raises(BadArgument, match=r'"s\.maxFilesPerTrigger" is "three"'):
        _ = source.files_per_batch


def test_a_run_that_has_begun_keeps_its_readers(tmp_path):
    (source,) = stream_sources([f"s=parquet:{tmp_path}"])
    control, checkpoint = tmp_path / "control", tmp_path / "checkpoint"
    control.mkdir()
    run = RunFile("q", (source,), Sink("noop"), control, str(checkpoint), None, 1, "local[2]", {})
    replace(run, streams=(replace(source, read_by="spark"),)).write()
    assert run.read_as_before().streams[0].read_by == "midstream", "nothing was read yet"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("")
    assert run.read_as_before().streams[0].read_by == "spark"
