"""Two Kafka topics are joined into a third, and a consumer drops repeated results by their headers.

Look at the end: each message is sent a second time, with its key and headers, as by a micro-batch that is run again
because its driver died. The consumer takes each result once. See docs/kafka.md.

    KAFKA_SERVERS=localhost:9092 python examples/kafka_results_once.py     # needs a broker, and confluent-kafka
"""

import json
import os
import shutil
import tempfile

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from midstream import ContinuousQuery
from midstream.kafka import RepeatFilter
from midstream.spark import read_kafka, session, stream
from midstream.spark.kafka_packages import with_kafka_packages

servers, folder = os.environ.get("KAFKA_SERVERS", "localhost:9092"), tempfile.mkdtemp()
topics = {name: f"{name}-{os.getpid()}" for name in ("orders", "payments", "paid")}
admin = AdminClient({"bootstrap.servers": servers})
for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics.values()]).values():
    made.result()
producer = Producer({"bootstrap.servers": servers})
for n in range(100):
    producer.produce(topics["orders"], json.dumps({"ts": n, "id": n}))
    producer.produce(topics["payments"], json.dumps({"ts": n + 5, "id": n}))
producer.flush()

spark = session(settings=with_kafka_packages({}))
frames = {name: read_kafka(spark, f"{servers}/{topics[name]}", "ts long, id long") for name in ("orders", "payments")}
query = ContinuousQuery(
    "SELECT o.id, p.ts AS paid FROM orders [RANGE 9] o, payments [RANGE 9] p WHERE o.id = p.id",
    [stream(name, frame, event_time="ts", lateness=100) for name, frame in frames.items()],
)
live = query.run_on_spark(frames, control_dir=f"{folder}/control")
running = live.write_kafka(f"{servers}/{topics['paid']}", f"{folder}/checkpoint")
running.processAllAvailable()
running.stop()

consumer = Consumer({"bootstrap.servers": servers, "group.id": "example", "auto.offset.reset": "earliest"})
consumer.subscribe([topics["paid"]])
messages = [consumer.poll(30) for _ in range(100)]
for message in messages:
    producer.produce(topics["paid"], message.value(), message.key(), message.partition(), headers=message.headers())
producer.flush()
messages += [consumer.poll(30) for _ in range(100)]
repeats = RepeatFilter()
new = [message for message in messages if repeats.is_new(message.partition(), message.headers())]
consumer.close()
print(f"{len(messages)} messages, {len(new)} results of {len({message.value() for message in new})} orders")
shutil.rmtree(folder)
