"""Readers of transactions in a run, in either isolation level: each record that they are given is judged at once."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.client.consumer import Consumer, ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.transactions import TransactionChecks
from tailrace.sim.loop import Process
from tailrace.sim.transactions.producers import is_recorded, name_of, text_of
from tailrace.wire.records import Record

_POLL_MS = 300
_READING = ConsumerOptions(fetch_max_wait_ms=300, retry_timeout_ms=600_000, partition_max_bytes=20_000)


class Reader:
    """From the beginning of its partitions on."""

    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        *,
        isolation: Isolation,
        outputs: Sequence[TopicPartition],
        checks: TransactionChecks,
    ) -> None:
        self.name = process.name
        self.positions = dict.fromkeys(partitions, 0)
        self.is_leaving = False
        self._cluster = cluster
        self._isolation = isolation
        self._outputs = frozenset(outputs)
        self._checks = checks
        self._recorded = checks.recorder.process(self.name, isolation=isolation.name.lower())
        self.task = process.spawn(self._run(), name=process.name)

    @property
    def is_committed_only(self) -> bool:
        return self._isolation is Isolation.READ_COMMITTED

    async def _run(self) -> None:
        consumer = Consumer(self._cluster, _READING._replace(isolation=self._isolation))
        await consumer.assign(self.positions)
        while not self.is_leaving:
            self._take(consumer, await consumer.poll(_POLL_MS))
        await consumer.close()
        self._cluster.close()

    def note_drained(self) -> None:
        self._recorded.drained()

    def _take(self, consumer: Consumer, polled: dict[TopicPartition, list[Record]]) -> None:
        for partition, before in self.positions.items():
            records = polled.get(partition, [])
            now = self.positions[partition] = consumer.position(partition).offset
            self._checks.judge_read(
                self.name, partition, (before, now), records, at_read_committed=self.is_committed_only
            )
            if self.is_committed_only and partition in self._outputs:
                for record in records:
                    self._note_effect(partition, record)
        told = [
            (name_of(partition), record.offset, self._told(partition, record.value or b""))
            for partition, records in polled.items()
            for record in records
            if is_recorded(record.value)
        ]
        if told:
            self._recorded.polled(told)

    def _told(self, partition: TopicPartition, value: bytes) -> str:
        if partition not in self._outputs:
            return text_of(value)
        source, offset = _source_of(value)
        return f"{source}@{offset}"

    def _note_effect(self, partition: TopicPartition, record: Record) -> None:
        self._checks.note_effect(_source_of(record.value or b""), partition, record.offset)


def _source_of(value: bytes) -> tuple[str, int]:
    """Which input record it is the effect of."""
    _producer, _number, _transaction, source, offset, _rest = value.split(b":", 5)
    return source.decode(), int(offset)
