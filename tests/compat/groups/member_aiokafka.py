"""A member of aiokafka: `python -m tests.compat.groups.member_aiokafka BOOTSTRAP GROUP TOPIC SETTINGS`, where the
settings are JSON, and "assignor" names one of its own."""

import asyncio
import json
import sys
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.compat.groups.journal import Journal

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Member(ConsumerRebalanceListener):
    def __init__(self, bootstrap: str, group: str, topic: str, settings: dict[str, object]) -> None:
        self._topic = topic
        self._journal = Journal()
        assignor = ASSIGNORS[str(settings.pop("assignor", "range"))]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=4000,
            retry_backoff_ms=50,
            partition_assignment_strategy=(assignor,),
            **settings,
        )

    async def run(self) -> None:
        await self._consumer.start()
        self._consumer.subscribe([self._topic], listener=self)
        while not self._journal.closing.is_set():
            polled = await self._consumer.getmany(timeout_ms=50, max_records=200)
            # What was polled before a rebalance and comes after it is no longer ours to read.
            records = [
                (partition.partition, message.offset, message.value)
                for partition, messages in polled.items()
                if partition in self._consumer.assignment()
                for message in messages
            ]
            if records:
                self._journal.read(records)
            if self._journal.is_commit_due():
                await self._commit()
        await self._commit()
        self._journal.gave_all_back()
        # It has left the group when it cancels its fetches, of which one that waits to try again lets that be seen.
        with suppress(asyncio.CancelledError):
            await self._consumer.stop()

    async def _commit(self) -> None:
        positions = dict(self._journal.positions)
        if not positions:
            return
        try:
            await self._consumer.commit(
                {TopicPartition(self._topic, partition): offset for partition, offset in positions.items()}
            )
        except KafkaError as error:
            self._journal.refused(repr(error))
            return
        self._journal.committed(positions)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await self._commit()
        self._journal.gave_back(each.partition for each in revoked)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._journal.assigned(each.partition for each in assigned)


async def _main() -> None:
    await Member(*sys.argv[1:4], json.loads(sys.argv[4])).run()


if __name__ == "__main__":
    asyncio.run(_main())
