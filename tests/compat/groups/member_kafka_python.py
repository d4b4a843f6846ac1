"""A member of kafka-python: `python -m tests.compat.groups.member_kafka_python BOOTSTRAP GROUP TOPIC SETTINGS`, where
the settings are JSON, and "assignors" names some of its own."""

import json
import sys

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from tests.compat.groups.journal import Journal

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Member(AsyncConsumerRebalanceListener):
    def __init__(self, bootstrap: str, group: str, topic: str, settings: dict[str, object]) -> None:
        self._topic = topic
        self._journal = Journal()
        names = settings.pop("assignors", ["range"])
        assert isinstance(names, list)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=4000,
            retry_backoff_ms=50,
            partition_assignment_strategy=[ASSIGNORS[name] for name in names],
            **settings,
        )
        self._consumer.subscribe([topic], listener=self)

    def run(self) -> None:
        while not self._journal.closing.is_set():
            polled = self._consumer.poll(timeout_ms=50, max_records=200)
            records = [
                (partition.partition, message.offset, message.value)
                for partition, messages in polled.items()
                for message in messages
            ]
            if records:
                self._journal.read(records)
            if self._journal.is_commit_due():
                self._commit()
        self._commit()
        self._journal.gave_all_back()
        self._consumer.close()

    def _commit(self) -> None:
        positions = dict(self._journal.positions)
        if not positions:
            return
        try:
            self._consumer.commit(self._as_offsets(positions))
        except KafkaError as error:
            self._journal.refused(repr(error))
            return
        self._journal.committed(positions)

    def _as_offsets(self, positions: dict[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in positions.items()
        }

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        # This runs on the library's own loop, where its blocking commit cannot.
        positions = dict(self._journal.positions)
        if positions:
            try:
                await self._consumer.commit_async(self._as_offsets(positions))
            except KafkaError as error:
                self._journal.refused(repr(error))
            else:
                self._journal.committed(positions)
        self._journal.gave_back(each.partition for each in revoked)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._journal.gave_back((each.partition for each in lost), is_lost=True)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._journal.assigned(each.partition for each in assigned)


if __name__ == "__main__":
    Member(*sys.argv[1:4], json.loads(sys.argv[4])).run()
