"""Streams from topics and results into topics, with a real broker and Spark's connector."""

from __future__ import annotations

import io
import json

import pytest
from pyspark.sql import functions as F

from midstream import ContinuousQuery
from midstream.errors import BadOption, DuplicateName, MissingColumn, NotStreaming
from midstream.kafka import KafkaTopic, RepeatFilter, result_id
from midstream.spark import bad_messages, read_kafka, stream, write_dead_letters
from midstream.spark.kafka_sink import KafkaSink
from tests.cli.commanding import call

ORDERS = "ts long, id long"
PAYMENTS = "ts long, id long, amount double"
TEXT = "SELECT o.id AS id, p.amount AS amount FROM orders [RANGE 100] o, payments [RANGE 100] p WHERE o.id = p.id"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": ["null", "long"]},
    ],
}


@pytest.fixture
def names(request):
    """Topics of a test's own."""
    return lambda name: f"{request.node.name.split('[')[0][-60:]}-{name}"


def rows_of(frame, folder):
    """What a streaming DataFrame gives of all that is there now."""
    seen = []
    writer = frame.writeStream.foreachBatch(lambda rows, batch: seen.extend(rows.collect()))
    running = writer.option("checkpointLocation", str(folder)).start()
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    return seen


def kept(broker, topic):
    """The results in a topic after repeats were dropped, and all messages."""
    repeats, messages = RepeatFilter(), broker.messages(topic)
    new = [message for message in messages if repeats.is_new(message.partition, message.headers)]
    return [json.loads(message.value) for message in new], messages


def avro_bytes(ts, id):
    """A record of :data:`AVRO`, by the rules of the format."""
    out = io.BytesIO()
    for number in [ts, *([0] if id is None else [1, id])]:
        rest = (number << 1) ^ (number >> 63)
        while rest > 127:
            out.write(bytes([rest & 127 | 128]))
            rest >>= 7
        out.write(bytes([rest]))
    return out.getvalue()


def test_json_of_several_partitions_and_what_is_bad(spark, connector, broker, names, tmp_path):
    topic = broker.create(names("in"), partitions=3)
    broker.send(names("in"), [{"ts": 1, "id": 1}, {"ts": 2, "id": 2, "more": [1]}], 0, key=b"k")
    bad = [b"{", b"[]", {"ts": 3, "id": "x"}, None, {"id": 4}, {"ts": None}, b"\xff\xfe", b"", b"7"]
    broker.send(names("in"), bad, 1, timestamp_ms=86_400_000)
    frame = read_kafka(spark, topic, ORDERS, event_time="ts")
    assert frame.columns[:-1] == ["ts", "id", "kafka_key", "kafka_partition", "kafka_offset", "kafka_timestamp"]
    assert stream("orders", frame, "ts").schema.names == frame.columns[:-1]
    found = rows_of(frame, tmp_path / "good")
    good = [(r.ts, r.id, bytes(r.kafka_key), r.kafka_partition, r.kafka_offset) for r in found if r.ts is not None]
    assert good == [(1, 1, b"k", 0, 0), (2, 2, b"k", 0, 1)]
    assert [(r.id, r.kafka_timestamp) for r in found if r.ts is None] == [(None, None)] * len(bad)
    reasons = {row.offset: row.reason for row in rows_of(bad_messages(frame), tmp_path / "bad")}
    undecodable = "not decodable"
    assert [reasons[offset] for offset in range(len(bad))] == [
        undecodable, undecodable, undecodable, "no value", "no event time", "no event time",
        undecodable, undecodable, undecodable,
    ]  # fmt: skip


def test_avro_by_its_schema(spark, connector, broker, names, tmp_path):
    topic = broker.create(names("in"))
    messages = [avro_bytes(5, 300), avro_bytes(6, None), b"", avro_bytes(5, 300)[:1], b"\xff" * 11, None]
    broker.send(names("in"), messages)
    frame = read_kafka(spark, topic, payload="avro", avro_schema=json.dumps(AVRO))
    assert frame.columns[:2] == ["ts", "id"]
    found = rows_of(
        frame.select(F.unix_micros("ts").alias("us"), "id", F.col("__bad_message").reason.alias("r")), tmp_path
    )
    assert [tuple(row) for row in found] == [
        (5, 300, None), (6, None, None), *[(None, None, "not decodable")] * 3, (None, None, "no value"),
    ]  # fmt: skip


def test_raw_as_it_is_or_by_spark_sql_with_the_time_of_the_message(spark, connector, broker, names, tmp_path):
    topic = broker.create(names("in"))
    broker.send(names("in"), [b"1;a", b"x;b", None], timestamp_ms=1_500)
    frame = read_kafka(spark, topic, payload="raw", event_time="kafka_timestamp")
    found = rows_of(frame, tmp_path / "raw")
    assert [row.value for row in found] == [b"1;a", b"x;b", None]
    assert [None if row.kafka_timestamp is None else row.kafka_timestamp.microsecond for row in found] == [
        500_000, 500_000, None,
    ]  # fmt: skip
    text = "split(CAST(value AS STRING), ';')"
    select = f"TRY_CAST({text}[0] AS LONG) AS id, {text}[1] AS name"
    frame = read_kafka(spark, topic, payload="raw", select=select, event_time="id")
    found = rows_of(frame.select("id", "name", F.col("__bad_message").reason.alias("reason")), tmp_path / "sql")
    assert [tuple(row) for row in found] == [(1, "a", None), (None, None, "no event time"), (None, None, "no value")]


def test_where_a_query_starts_to_read(spark, connector, broker, names, tmp_path):
    topic = broker.create(names("in"))
    broker.send(names("in"), [{"ts": number, "id": number} for number in range(4)])

    def read(**options):
        return [row.id for row in rows_of(read_kafka(spark, topic, ORDERS, **options), tmp_path / str(options))]

    assert read() == [0, 1, 2, 3]
    assert read(starting_offsets=json.dumps({names("in"): {"0": 2}})) == [2, 3]
    assert read(starting_offsets="latest") == []
    assert read(options={"startingOffsets": "latest"}) == []
    broker.send(names("in"), [{"ts": 9, "id": 9}])
    # Only the first start counts: then the checkpoint says where to go on.
    assert read(starting_offsets="latest") == [9]
    assert read() == [9]


def test_a_silent_partition_does_not_hold_the_watermark(spark, connector, broker, names, tmp_path):
    topic = broker.create(names("in"), partitions=3)
    frame = read_kafka(spark, topic, ORDERS, event_time="ts")
    text = "SELECT COUNT(*) AS n FROM orders [RANGE 10 SLIDE 10]"
    live = ContinuousQuery(text, [stream("orders", frame, "ts", lateness=5)]).run_on_spark(
        {"orders": frame}, control_dir=tmp_path / "control"
    )
    out = broker.create(names("out"))
    broker.send(names("in"), [{"ts": 1, "id": 1}, {"ts": 30, "id": 2}], 0)
    broker.send(names("in"), [{"ts": 2, "id": 3}, b"bad"], 1)
    running = live.write_kafka(out, tmp_path / "checkpoint")
    running.processAllAvailable()
    assert [(r["n"], r["valid_from"], r["valid_to"]) for r in kept(broker, names("out"))[0]] == [(2, 10, 20)]
    assert live.metrics()["watermark"] == 25
    # A partition that was silent, and lags by more than the lateness: its rows are late.
    broker.send(names("in"), [{"ts": 24, "id": 4}, {"ts": 26, "id": 4}], 2)
    running.processAllAvailable()
    running.stop()
    counts = {"rows": 6, "without_event_time": 0, "event_time_out_of_range": 0, "late": 1, "bad_messages": 1}
    assert live.metrics()["streams"]["orders"] == counts


def test_from_topics_to_a_topic_on_the_command_line(spark, connector, broker, names, spark_in, tmp_path):
    spark_in(tmp_path)
    for name in ("orders", "payments", "dead"):
        broker.create(names(name), partitions=2)
    broker.create(names("out"), partitions=2)
    for number in range(4):
        broker.send(names("orders"), [{"ts": number, "id": number}], number % 2)
    broker.send(names("orders"), [{"ts": number, "id": number} for number in range(4, 40)], 0)
    broker.send(names("orders"), [b"nonsense", {"id": 3}], 1, key=b"\xff")
    broker.send(names("payments"), [{"ts": number, "id": number, "amount": number / 2} for number in range(40)])
    asked = ["run", "-q", TEXT, "--control", "c.control", "--until-end"]
    for name, schema in (("orders", ORDERS), ("payments", PAYMENTS)):
        asked += ["-s", f"{name}=kafka:{broker.topic(names(name))}", "--schema", f"{name}={schema}"]
    asked += ["--sink", f"kafka:{broker.topic(names('out'))}", "--sink-option", "key=id", "--dead-letters", "dead"]
    ran = call(*asked)
    assert ran.code == 0, ran.err
    assert "dropped: 2 rows of orders could not be read" in ran.out
    assert f"results: kafka:{broker.topic(names('out'))}" in ran.out
    results, messages = kept(broker, names("out"))
    assert len(results) == len(messages) == 40
    assert sorted((r["id"], r["amount"]) for r in results) == [(number, number / 2) for number in range(40)]
    assert {message.partition for message in messages} == {0, 1}
    assert all(message.key == str(json.loads(message.value)["id"]).encode() for message in messages)
    assert len({result_id(message.headers) for message in messages}) == 40
    (dead,) = (path for path in (tmp_path / "dead").glob("*.json") if path.stat().st_size)
    lines = [json.loads(line) for line in dead.read_text().splitlines()]
    assert [(line["reason"], line["value"], line["key"], line["key_base64"]) for line in lines] == [
        ("not decodable", "nonsense", None, "/w=="), ("no event time", '{"id": 3}', None, "/w=="),
    ]  # fmt: skip
    status = call("status", "c.control")
    assert "bad messages" in status.out
    assert call("status", "c.control", "--json").document["metrics"]["streams"]["orders"]["bad_messages"] == 2
    explained = call("explain", *asked[1:3], *asked[6:14], "--plans")
    assert explained.code == 0, explained.err


def test_dead_letters_in_a_topic_say_where_they_were(spark, connector, broker, names, tmp_path):
    topics = [broker.create(names(name)) for name in ("one", "two")]
    dead = broker.create(names("dead"))
    for name in ("one", "two"):
        broker.send(names(name), [{"ts": 1, "id": 1}, b"\xffbad"], key=b"k")
    frames = [read_kafka(spark, topic, ORDERS) for topic in topics]
    running = write_dead_letters(frames, f"kafka:{dead}", tmp_path / "checkpoint")
    running.processAllAvailable()
    running.stop()
    found = broker.messages(names("dead"))
    assert [(message.key, message.value) for message in found] == [(b"k", b"\xffbad")] * 2
    said = [dict(message.headers) for message in found]
    assert sorted(one["midstream-topic"].decode() for one in said) == [names("one"), names("two")]
    assert {(one["midstream-reason"], one["midstream-offset"], one["midstream-partition"]) for one in said} == {
        (b"not decodable", b"1", b"0")
    }


class Killed(Exception):
    """Stands for the death of the driver."""


def test_a_micro_batch_that_is_sent_again_has_the_same_headers(spark, connector, broker, names, tmp_path, monkeypatch):
    streams = {"orders": ORDERS, "payments": PAYMENTS}
    topics = {name: broker.create(names(name), partitions=2) for name in streams}
    out = broker.create(names("out"), partitions=3)
    expected = []
    send, numbered = KafkaSink._send, KafkaSink._numbered

    def run(sending):
        frames = {name: read_kafka(spark, topics[name], schema, event_time="ts") for name, schema in streams.items()}
        declared = [stream(name, frame, "ts", lateness=1000) for name, frame in frames.items()]
        live = ContinuousQuery(TEXT, declared).run_on_spark(frames, control_dir=tmp_path / "control", cells=2)
        monkeypatch.setattr(KafkaSink, "_send", sending)
        running = live.write_kafka(out, tmp_path / "checkpoint")
        try:
            running.processAllAvailable()
        finally:
            running.stop()

    def killed_after(self, messages):
        send(self, messages)
        raise Killed

    def killed_amid(self, messages):
        send(self, messages.where("crc32(value) % 2 = 0"))
        raise Killed

    def in_any_order(self, frame):
        return numbered(self, frame.sortWithinPartitions(F.rand()))

    monkeypatch.setattr(KafkaSink, "_numbered", in_any_order)
    for round, sending in enumerate((send, killed_after, killed_amid, send)):
        for partition in range(2):
            numbers = [100 * round + 2 * place + partition for place in range(10)]
            for name in streams:
                rows = [{"ts": 50 * round, "id": number, "amount": 0.5} for number in numbers for _ in range(2)]
                broker.send(names(name), rows, partition)
            expected += [number for number in numbers for _ in range(4)]
        if sending is send:
            run(sending)
        else:
            with pytest.raises(Exception, match="Killed"):
                run(sending)
    results, messages = kept(broker, names("out"))
    assert sorted(result["id"] for result in results) == sorted(expected)
    # The second round once more, and once more half of it.
    assert len(messages) > len(results) + 80
    assert {path.name for path in (tmp_path / "checkpoint" / "kafka_results").iterdir()} == {"2"}
    by_id: dict[object, set[tuple[int, bytes, bytes]]] = {}
    for message in messages:
        by_id.setdefault(result_id(message.headers), set()).add((message.partition, message.key, message.value))
    assert all(len(same) == 1 for same in by_id.values())
    assert len(by_id) == len(expected)


def test_what_was_stored_is_sent_though_another_attempt_computes_it_otherwise(spark, tmp_path, monkeypatch):
    """A query that recovers may cut validities in other places: half of each attempt would not fit together."""
    sent = []
    monkeypatch.setattr(KafkaSink, "_send", lambda self, messages: sent.append(messages.collect()))
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    try:
        sink = KafkaSink(KafkaTopic("127.0.0.1:1", "t"), ["k", "valid_from", "valid_to"], str(tmp_path), "k")
        whole = spark.createDataFrame([("a", 0, 9), (None, 1, 2)], "k string, valid_from long, valid_to long")
        cut = spark.createDataFrame([("a", 0, 5), ("a", 5, 9), (None, 1, 2)], whole.schema)
        sink(whole.coalesce(1), 4)
        sink(cut.coalesce(1), 4)
        sink(cut.coalesce(1), 5)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
    assert sent[0] == sent[1]
    assert [(row.key, json.loads(row.value)) for row in sent[0]] == [
        ("a", {"k": "a", "valid_from": 0, "valid_to": 9}),
        ("q/4/1", {"k": None, "valid_from": 1, "valid_to": 2}),
    ]
    ids = [result_id([(header.key, bytes(header.value)) for header in row.headers]) for row in sent[0]]
    assert ids == [("q", 4, 0), ("q", 4, 1)]
    assert len(sent[2]) == 3
    assert [path.name for path in (tmp_path / "kafka_results").iterdir()] == ["5"]


def test_of_two_drivers_on_one_checkpoint_both_send_what_one_has_stored(spark, tmp_path, monkeypatch):
    """Each computes the micro-batch before the other one has stored it."""
    sent = []
    monkeypatch.setattr(KafkaSink, "_send", lambda self, messages: sent.append(messages.collect()))
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    schema = "k string, valid_from long, valid_to long"
    topic = KafkaTopic("127.0.0.1:1", "t")
    one, other = (KafkaSink(topic, ["k", "valid_from", "valid_to"], str(tmp_path), "k") for _ in range(2))
    numbered = one._numbered

    def overtaken(frame):
        other(spark.createDataFrame([("a", 0, 9)], schema).coalesce(1), 0)
        return numbered(frame)

    monkeypatch.setattr(one, "_numbered", overtaken)
    try:
        one(spark.createDataFrame([("a", 0, 5), ("a", 5, 9)], schema).coalesce(1), 0)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert [json.loads(row.value)["valid_to"] for row in sent[0]] == [9]


def test_what_cannot_be_sent_or_read_is_refused_before_anything_runs(spark, connector, tmp_path):
    topic = KafkaTopic("127.0.0.1:1", "t")
    for wrong, words in (
        ({"payload": "xml"}, "the payload is 'xml'"),
        ({}, "json messages need schema"),
        ({"payload": "avro"}, "avro messages need avro_schema"),
        ({"payload": "avro", "avro_schema": '"long"'}, "not that of a record"),
        ({"schema": ORDERS, "select": "1 AS x"}, "select is for raw messages"),
        ({"payload": "raw", "select": "nothing AS x"}, "Spark cannot read select"),
    ):
        with pytest.raises(BadOption, match=words):
            read_kafka(spark, topic, **wrong)
    with pytest.raises(MissingColumn, match='"when" is not a column'):
        read_kafka(spark, topic, ORDERS, event_time="when")
    with pytest.raises(BadOption, match='the key "ix" is not a column'):
        KafkaSink(topic, ["id", "valid_from", "valid_to"], "c", "ix")
    for option in ("kafka.partitioner.class", "Kafka.Partitioner.Ignore.Keys"):
        with pytest.raises(BadOption, match="copies of a result may go to other partitions"):
            KafkaSink(topic, ["id", "valid_from", "valid_to"], "c", options={option: "x"})
    with pytest.raises(BadOption, match='the key "3" is not a column'):
        KafkaSink(topic, ["id", "valid_from", "valid_to"], "c", 3)
    with pytest.raises(BadOption, match="options is 3"):
        KafkaSink(topic, ["id", "valid_from", "valid_to"], "c", options=3)
    with pytest.raises(BadOption, match="there are no DataFrames"):
        write_dead_letters([], tmp_path / "dead", tmp_path / "c")
    with pytest.raises(DuplicateName, match="two columns"):
        KafkaSink(topic, ["id", "id", "valid_from", "valid_to"], "c")
    with pytest.raises(BadOption, match="does not say which messages are bad"):
        bad_messages(spark.range(1))
    batch = spark.range(1).selectExpr("id", "id AS ts")
    live = ContinuousQuery("SELECT id FROM a [NOW]", [stream("a", batch, "ts")]).run_on_spark({"a": batch})
    with pytest.raises(NotStreaming):
        live.write_kafka(topic, tmp_path / "c")
