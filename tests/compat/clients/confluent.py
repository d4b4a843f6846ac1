"""confluent-kafka: librdkafka, the C library under most languages' clients."""

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from . import DEADLINE_S, Received, Sent


class Confluent:
    """librdkafka through its Python binding."""

    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Iterable[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        pause_s: float = 0.0,
    ) -> list[int]:
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            elif acks != "0":
                offsets.append(message.offset())

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.timeout.ms": int(DEADLINE_S * 1000),
            }
        )
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=0,
                timestamp=record.timestamp_ms,
                on_delivery=delivered,
            )
            time.sleep(pause_s)
        assert producer.flush(DEADLINE_S) == 0, "records were still unsent at the deadline"
        assert not errors, errors
        return offsets

    def read(self, bootstrap: str, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        consumer = self.consumer(bootstrap)
        try:
            consumer.assign([TopicPartition(topic, 0, offset)])
            return self._take(consumer, count)
        finally:
            consumer.close()

    def read_since(self, bootstrap: str, topic: str, count: int, timestamp_ms: int) -> list[Received]:
        consumer = self.consumer(bootstrap)
        try:
            found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=DEADLINE_S)
            consumer.assign(found)
            return self._take(consumer, count)
        finally:
            consumer.close()

    @staticmethod
    def consumer(bootstrap: str, **settings: object) -> Consumer:
        """A consumer that belongs to no group: the id is required by the library, and never used for a commit."""
        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                **{name if callable(value) else name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    @staticmethod
    def _take(consumer: Consumer, count: int) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(received) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(received), timeout=1.0):
                assert message.error() is None, message.error()
                received.append(
                    Received(
                        message.offset(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                )
        assert len(received) == count, f"{len(received)} of {count} records came in time"
        return received
