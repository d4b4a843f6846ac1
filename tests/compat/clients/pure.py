"""kafka-python: pure Python, flexible versions, fetch sessions, idempotent unless told otherwise."""

import gc
import socket
import time
import warnings
from collections.abc import Iterable

from . import DEADLINE_S, Received, Sent

with warnings.catch_warnings():
    # The library loads its schemas by a function that Python 3.11 deprecates; that is not ours to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition


class KafkaPython:
    """kafka-python, with the codec packages of its extras."""

    name = "kafka-python"
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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        try:
            sent = []
            for record in records:
                sent.append(
                    producer.send(
                        topic,
                        record.value,
                        record.key,
                        headers=list(record.headers),
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                    )
                )
                time.sleep(pause_s)
            producer.flush(timeout=DEADLINE_S)
            answers = [future.get(timeout=DEADLINE_S) for future in sent]
        finally:
            producer.close()
            _close_refused_sockets()
        return [] if acks == "0" else [answer.offset for answer in answers]

    def read(self, bootstrap: str, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        return self._read(bootstrap, topic, count, offset=offset, timestamp_ms=None)

    def read_since(self, bootstrap: str, topic: str, count: int, timestamp_ms: int) -> list[Received]:
        return self._read(bootstrap, topic, count, offset=0, timestamp_ms=timestamp_ms)

    @staticmethod
    def consumer(bootstrap: str, **settings: object) -> KafkaConsumer:
        """A consumer that belongs to no group."""
        return KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            **settings,
        )

    def _read(self, bootstrap: str, topic: str, count: int, *, offset: int, timestamp_ms: int | None) -> list[Received]:
        consumer = self.consumer(bootstrap)
        partition = TopicPartition(topic, 0)
        received: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        try:
            consumer.assign([partition])
            if timestamp_ms is not None:
                offset = consumer.offsets_for_times({partition: timestamp_ms})[partition].offset
            consumer.seek(partition, offset)
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=1000, max_records=count - len(received))
                received.extend(
                    Received(message.offset, message.key, message.value, tuple(message.headers), message.timestamp)
                    for message in polled.get(partition, ())
                )
        finally:
            consumer.close()
            _close_refused_sockets()
        assert len(received) == count, f"{len(received)} of {count} records came in time"
        return received


def _close_refused_sockets() -> None:
    """The library never closes a socket whose connect was refused, and a later test would be warned of it."""
    for each in gc.get_objects():
        if type(each) is socket.socket and each.family == socket.AF_INET and each.fileno() >= 0:
            host, port = each.getsockname()
            # Without a port it has yet to connect.
            if host == "0.0.0.0" and port:
                each.close()
