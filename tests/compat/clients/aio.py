"""aiokafka: asyncio, with Cython record codecs; it speaks the older, not flexible, versions of most requests."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from . import DEADLINE_S, Received, Sent


class Aiokafka:
    """aiokafka, one event loop per call."""

    name = "aiokafka"
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
        writing = self.write(bootstrap, topic, records, acks=acks, codec=codec, idempotent=idempotent, pause_s=pause_s)
        return asyncio.run(writing)

    def read(self, bootstrap: str, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        return asyncio.run(self._read(bootstrap, topic, count, offset=offset, timestamp_ms=None))

    def read_since(self, bootstrap: str, topic: str, count: int, timestamp_ms: int) -> list[Received]:
        return asyncio.run(self._read(bootstrap, topic, count, offset=0, timestamp_ms=timestamp_ms))

    @staticmethod
    async def write(
        bootstrap: str,
        topic: str,
        records: Iterable[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        pause_s: float = 0.0,
    ) -> list[int]:
        """As produce, on the caller's loop."""
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        await producer.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                sent = []
                for record in records:
                    sent.append(
                        await producer.send(
                            topic,
                            record.value,
                            record.key,
                            partition=0,
                            timestamp_ms=record.timestamp_ms,
                            headers=list(record.headers),
                        )
                    )
                    await asyncio.sleep(pause_s)
                answers = await asyncio.gather(*sent)
        finally:
            await producer.stop()
        return [] if acks == "0" else [answer.offset for answer in answers]

    @staticmethod
    async def _read(bootstrap: str, topic: str, count: int, *, offset: int, timestamp_ms: int | None) -> list[Received]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none", check_crcs=True
        )
        partition = TopicPartition(topic, 0)
        received: list[Received] = []
        await consumer.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                consumer.assign([partition])
                if timestamp_ms is not None:
                    offset = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition].offset
                consumer.seek(partition, offset)
                while len(received) < count:
                    message = await consumer.getone(partition)
                    received.append(
                        Received(message.offset, message.key, message.value, tuple(message.headers), message.timestamp)
                    )
        finally:
            await consumer.stop()
        return received
