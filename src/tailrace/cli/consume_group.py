"""`tailrace consume --group`: the records that the group has not read yet, of the partitions that this member has.

Offsets of what was written are committed every few seconds, before partitions go to another member, and at the end.
What was not written, since the reader of our output has left or the count was reached, is not committed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Mapping

from tailrace.cli.consume import wanted_of
from tailrace.cli.output import Progress, count_text, is_terminal, note
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.records import Record

# Also how often `--until-end` looks what other members have done.
_POLL_MS = 500

Write = Callable[[str, int, Record], bytes]


async def consume_in_group(cluster: Cluster, options: argparse.Namespace, write: Write) -> int:
    # A group may wait for a topic to appear; whoever mistypes it should not have to.
    topic = await cluster.topic(options.topic)
    fetching = ConsumerOptions(isolation=options.isolation)
    ends = await _ends(cluster, topic, fetching) if options.until_end else None
    consumer = GroupConsumer(
        cluster,
        GroupOptions(
            group_id=options.group,
            member=MemberOptions(topics=(options.topic,)),
            protocol=GroupProtocol(options.group_protocol),
            start=EARLIEST if options.start == "beginning" else LATEST,
            fetching=fetching,
        ),
        on_assigned=lambda partitions: note(f"assigned {count_text(len(partitions), 'partition')}"),
        on_revoked=lambda partitions: note(f"handed over {count_text(len(partitions), 'partition')}"),
        on_lost=lambda partitions: note(
            f"lost {count_text(len(partitions), 'partition')}: the group went on without us"
        ),
    )
    progress = Progress("consumed", is_shown=not is_terminal(sys.stdout))
    # However this process is ended, as with Ctrl-C: the group should not have to wait for the session to end.
    on_terminate = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        left = options.count
        while left != 0:
            found = await consumer.poll(_POLL_MS)
            written = _write(consumer, found, left, ends, write=write, progress=progress)
            left = None if left is None else left - written
            if ends is not None and await _is_at_end(consumer, ends):
                break
            if found and not written:
                # Records that came after the end; other members are still on their way to it.
                await asyncio.sleep(_POLL_MS / 1000)
    finally:
        progress.end()
        await consumer.close()
        signal.signal(signal.SIGTERM, on_terminate)
    return 0


def _write(
    consumer: GroupConsumer,
    found: Mapping[TopicPartition, list[Record]],
    left: int | None,
    ends: Mapping[TopicPartition, int] | None,
    *,
    write: Write,
    progress: Progress,
) -> int:
    """Writes what is wanted of these records, and tells how many that were."""
    next_offsets = {partition: consumer.position(partition) for partition in found}
    for partition, records in found.items():
        consumer.seek(partition, records[0].offset)  # Until they are written.
    count = 0
    for partition, records in found.items():
        rest = None if left is None else left - count
        wanted = wanted_of(records, rest, ends.get(partition) if ends else None)
        lines = b"".join([write(partition.topic, partition.partition, record) for record in wanted])
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
        progress.add(len(wanted), len(lines))
        count += len(wanted)
        is_all = len(wanted) == len(records)
        consumer.seek(partition, next_offsets[partition] if is_all else records[len(wanted)].offset)
    return count


async def _ends(cluster: Cluster, topic: TopicMetadata, fetching: ConsumerOptions) -> dict[TopicPartition, int]:
    partitions = [TopicPartition(topic.name, PartitionIndex(index)) for index in topic.partitions]
    return await Consumer(cluster, fetching).offsets_at(partitions, LATEST)


async def _is_at_end(consumer: GroupConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    """What other members have is done once they have committed it."""
    owned = consumer.assignment
    if any(consumer.position(partition) < end for partition, end in ends.items() if partition in owned):
        return False
    others = [partition for partition, end in ends.items() if partition not in owned and end > 0]
    committed = await consumer.committed(others) if others else {}
    return all(committed.get(partition, 0) >= ends[partition] for partition in others)
