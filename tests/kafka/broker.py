"""A real broker for tests: one node (KRaft), on free ports of this machine, that can be killed and started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from midstream.spark.java import provide_java
from tests.kafka.packages import broker_jars

_CLUSTER = "bWlkc3RyZWFtLXRlc3RzMA"
_JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class Message(NamedTuple):
    """A message as it is in a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Broker:
    """A broker with its own directory; ``with Broker(path) as broker: ...``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        port, control = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        # The clients would report on each try to reach a broker that is dead.
        self._client = {"bootstrap.servers": self.address, "log_level": 0}
        self._settings = directory / "server.properties"
        self._settings.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{control}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{control}\n"
            f"advertised.listeners=PLAINTEXT://{self.address}\ncontroller.listener.names=CONTROLLER\n"
            f"log.dirs={directory / 'data'}\noffsets.topic.replication.factor=1\nauto.create.topics.enable=false\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._producer: Producer | None = None
        self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)).wait(60)

    def topic(self, name: str) -> str:
        """What midstream calls a topic."""
        return f"{self.address}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._java("kafka.Kafka", str(self._settings))
        until = time.monotonic() + 60
        while True:
            try:
                self._admin().list_topics(timeout=5)
                return
            except KafkaException:
                assert self._process.poll() is None, (self._directory / "broker.log").read_text()[-2000:]
                assert time.monotonic() < until, "the broker does not answer"
                time.sleep(0.2)

    def kill(self) -> None:
        """As ``kill -9``."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def create(self, name: str, partitions: int = 1) -> str:
        """Create a topic; gives what midstream calls it."""
        admin = self._admin()
        (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        made.result(timeout=30)
        return self.topic(name)

    def send(
        self,
        topic: str,
        messages: Iterable[Any],
        partition: int = 0,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send messages, in order: bytes, None, or anything that is to be JSON."""
        if self._producer is None:
            self._producer = Producer({**self._client, "enable.idempotence": True})
        producer = self._producer
        time_of_message = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        for message in messages:
            value = message if message is None or isinstance(message, bytes) else json.dumps(message).encode()
            producer.produce(topic, value, key, partition, **time_of_message)
        assert producer.flush(120) == 0, "messages were not sent"

    def messages(self, topic: str) -> list[Message]:
        """All messages that are there now, by partition and offset."""
        consumer = Consumer({**self._client, "group.id": "tests", "enable.auto.commit": False})
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = []
        for partition in sorted(partitions):
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, begin)])
            at = begin
            while at < end:
                message = consumer.poll(30)
                assert message is not None and message.error() is None, message and message.error()
                found.append(Message(partition, message.key(), message.value(), message.headers() or []))
                at = message.offset() + 1
        consumer.close()
        return found

    def _admin(self) -> AdminClient:
        return AdminClient(self._client)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._process is not None:
            self.kill()

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        java = str(provide_java().home / "bin" / "java")
        command = [java, *_JAVA, "-cp", os.pathsep.join(broker_jars()), main, *arguments]
        with open(self._directory / "broker.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
