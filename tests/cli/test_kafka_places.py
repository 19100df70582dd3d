"""Topics as the command line names them, and what its failures mean; without Spark and without a broker."""

import json
import socket

import pytest

from midstream.cli.explain import declared
from midstream.cli.saved_run import RunFile
from midstream.cli.sinks import check_unused, read_sink
from midstream.cli.sources import choose_event_time, read_dead_letters, stream_sources
from midstream.cli.spark_failures import explain_spark_failure
from midstream.errors import BadArgument, BadStreamDeclaration, KafkaUnreachable, PathProblem, UnreadableFile
from midstream.kafka.topic import KafkaTopic
from midstream.spark.kafka_packages import kafka_packages, with_kafka_packages

AVRO = '{"type": "record", "name": "r", "fields": []}'


def source(place, *options, schema=None):
    schemas = [] if schema is None else [f"a={schema}"]
    (found,) = stream_sources([f"a={place}"], options=list(options), schemas=schemas)
    return found


def test_a_topic_is_a_stream_with_its_payload_and_the_options_of_sparks_source():
    found = source("kafka:one:9092,two:9092/x", "startingOffsets=latest", schema="ts long")
    assert (found.topic, found.path, found.is_file, found.has_end) == ("one:9092,two:9092/x", None, False, True)
    assert found.kafka_options == {
        "schema": "ts long",
        "payload": "json",
        "avro_schema": None,
        "select": None,
        "options": {"startingOffsets": "latest"},
    }
    raw = source("kafka:h:1/x", "a.payload=raw", "a.select=1 AS ts, 2 AS id")
    assert (raw.kafka_options["payload"], raw.kafka_options["select"]) == ("raw", "1 AS ts, 2 AS id")
    assert source("kafka").topic is None


def test_an_avro_schema_is_given_itself_or_by_its_file(tmp_path):
    (tmp_path / "r.avsc").write_text(AVRO)
    for given in (AVRO, tmp_path / "r.avsc"):
        found = source("kafka:h:1/x", "payload=avro", f"avroSchema={given}")
        assert json.loads(found.kafka_options["avro_schema"]) == json.loads(AVRO)
    with pytest.raises(PathProblem, match="cannot read the Avro schema"):
        source("kafka:h:1/x", "payload=avro", f"avroSchema={tmp_path / 'none'}")


def test_what_names_no_topic_or_has_no_columns_is_refused():
    for place in ("kafka:h/x", "kafka:h:1", "kafka:h:1/a b"):
        with pytest.raises(BadArgument, match="cannot read the topic"):
            source(place, schema="ts long")
        with pytest.raises(BadArgument, match="names no topic"):
            read_sink(place, [])
    with pytest.raises(BadArgument, match='columns of stream "a" are not known'):
        source("kafka:h:1/x")


def test_the_event_time_is_a_column_or_else_the_time_of_the_message():
    assert declared(source("kafka:h:1/x", schema="id long, at timestamp")).event_time == "at"
    assert declared(source("kafka:h:1/x", schema="id long, ts long")).event_time == "ts"
    assert declared(source("kafka:h:1/x", schema="id long, name string")).event_time == "kafka_timestamp"
    raw = declared(source("kafka:h:1/x", "payload=raw"))
    assert (raw.event_time, raw.schema.names[0]) == ("kafka_timestamp", "value")
    with pytest.raises(BadStreamDeclaration, match="cannot choose"):
        choose_event_time("a", {"x": "timestamp", "y": "timestamp"}, None, "kafka_timestamp")


def test_a_sink_and_dead_letters(tmp_path):
    sink = read_sink("kafka:h:9092/out", ["key=id", "kafka.acks=all"])
    assert (sink.is_kafka, sink.path, sink.shown) == (True, "h:9092/out", "kafka:h:9092/out")
    assert sink.kafka_options == {"key": "id", "options": {"kafka.acks": "all"}}
    check_unused(sink)
    assert not read_sink("kafka", ["topic=x"]).is_kafka
    topics = [source("kafka:h:1/x", schema="ts long")]
    assert read_dead_letters("kafka:h:1/bad", topics) == "kafka:h:1/bad"
    assert read_dead_letters(str(tmp_path / "bad"), topics) == str(tmp_path / "bad")
    assert read_dead_letters(None, []) is None
    for wrong, among, words in (
        ("kafka:h/bad", topics, "names no topic"),
        ("d", [source("rate")], "for streams of Kafka"),
    ):
        with pytest.raises(BadArgument, match=words):
            read_dead_letters(wrong, among)


def test_a_run_remembers_topics_and_dead_letters(tmp_path):
    topics = tuple([source("kafka:h:1/x", schema="ts long")])
    written = RunFile("q", topics, read_sink("noop", []), tmp_path, str(tmp_path / "c"), dead_letters="kafka:h:1/bad")
    written.write()
    assert RunFile.read(tmp_path) == written
    content = json.loads(written.path.read_text())
    del content["dead_letters"]
    for stream in content["streams"]:
        del stream["topic"]
    written.path.write_text(json.dumps(content))
    # Of a run that began before there were any.
    assert (RunFile.read(tmp_path).dead_letters, RunFile.read(tmp_path).streams[0].topic) == (None, None)


def test_packages_are_added_unless_they_are_there():
    kafka, avro = kafka_packages(with_avro=True)
    assert with_kafka_packages({}) == {"spark.jars.packages": kafka}
    assert with_kafka_packages({"spark.jars.packages": "x:y:1"}, True)["spark.jars.packages"] == f"x:y:1,{kafka},{avro}"
    mine = {"spark.jars.packages": kafka.replace(":4.", ":3.")}
    assert with_kafka_packages(mine) == mine
    assert (
        with_kafka_packages({"spark.jars": "/x/spark-sql-kafka-0-10_2.13-4.2.0.jar"}, True)["spark.jars.packages"]
        == avro
    )


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
            "topic-partition.",
            KafkaUnreachable,
            "does not exist",
        ),
        (
            "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.",
            KafkaUnreachable,
            "no Kafka broker answers",
        ),
        (
            "org.apache.spark.sql.kafka010 Some data may have been lost because",
            UnreadableFile,
            "are gone from their topic",
        ),
    ],
)
def test_failures_of_kafka_are_named(text, kind, words):
    explained = explain_spark_failure(RuntimeError(text))
    assert isinstance(explained, kind)
    assert words in explained.message


def test_brokers_that_take_no_connection_are_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        KafkaTopic.parse(f"127.0.0.1:1,127.0.0.1:{port}/t").check_reachable()
    with pytest.raises(KafkaUnreachable, match=f"(?s)no Kafka broker answers.*127.0.0.1:1: .*127.0.0.1:{port}: "):
        KafkaTopic.parse(f"127.0.0.1:1,127.0.0.1:{port}/t").check_reachable()
