"""`tailrace group reset`: other committed offsets for a group without members. Shows them; `--execute` commits them.

An offset outside of a partition becomes the nearest that is in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, note, print_json, print_rows
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition


class Change(NamedTuple):
    partition: TopicPartition
    before: int | None
    after: int
    end: int


async def reset_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = GroupAdmin(cluster)
    await _check_has_no_members(admin, options.group)
    committed = {
        partition: found.offset
        for partition, found in (await admin.offsets_of(options.group, lambda offsets: offsets.fetch())).items()
    }
    partitions = await _partitions(cluster, options, committed)
    changes = await _changes(Consumer(cluster), partitions, committed, options)
    if options.execute:
        targets = {change.partition: change.after for change in changes}
        await admin.offsets_of(options.group, lambda offsets: offsets.commit(targets))
    _print(changes, options)
    return 0


async def _check_has_no_members(admin: GroupAdmin, group_id: str) -> None:
    try:
        group = await admin.describe(group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        note(f"group {group_id} does not exist yet: its first committed offsets make it")
        return
    if group.members:
        raise CommandError(
            f"group {group_id} has {count_text(len(group.members), 'member')}, which would commit over it: stop them "
            f"first; see: tailrace group describe {group_id}"
        )


async def _partitions(
    cluster: Cluster, options: argparse.Namespace, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if options.all_topics:
        topics = await cluster.refresh(None)
        found = [
            partition
            for partition in sorted(committed)
            if partition.topic in topics and partition.partition in topics[partition.topic].partitions
        ]
        if not found:
            raise CommandError(f"group {options.group} has committed no offsets: name the topics, with --topic")
        return found
    chosen: dict[TopicPartition, None] = {}
    for word in options.topic:
        name, indexes = _parse_topic(word)
        existing = (await cluster.topic(name)).partitions
        for index in existing if indexes is None else indexes:
            if index not in existing:
                raise CommandError(f"topic {name} has no partition {index}: it has 0 to {len(existing) - 1}")
            chosen[TopicPartition(name, PartitionIndex(index))] = None
    return list(chosen)


def _parse_topic(word: str) -> tuple[str, list[int] | None]:
    """No topic has a colon in its name."""
    name, colon, indexes = word.partition(":")
    if not colon:
        return name, None
    if not name or not all(index.isascii() and index.isdigit() for index in indexes.split(",")):
        raise CommandError(f"{word!r} is not TOPIC or TOPIC:N,..., such as orders:0,3")
    return name, [int(index) for index in indexes.split(",")]


async def _changes(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    options: argparse.Namespace,
) -> list[Change]:
    starts = await consumer.offsets_at(partitions, EARLIEST)
    ends = await consumer.offsets_at(partitions, LATEST)
    wanted: Mapping[TopicPartition, int]
    if options.to_earliest:
        wanted = starts
    elif options.to_latest:
        wanted = ends
    elif options.to_offset is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    elif options.shift_by is not None:
        missing = [partition for partition in partitions if partition not in committed]
        if missing:
            raise CommandError(f"{missing[0]} has no committed offset to shift: use one of the --to options")
        wanted = {partition: committed[partition] + options.shift_by for partition in partitions}
    else:
        moment = options.to_datetime or options.by_duration
        wanted = await consumer.offsets_at(partitions, moment.timestamp_ms(consumer.cluster.ports.clock.wall_ms()))
    return [
        Change(
            partition,
            committed.get(partition),
            min(max(wanted[partition], starts[partition]), ends[partition]),
            ends[partition],
        )
        for partition in partitions
    ]


def _print(changes: Sequence[Change], options: argparse.Namespace) -> None:
    if options.json:
        for change in changes:
            print_json(
                {
                    "group_id": options.group,
                    "topic": change.partition.topic,
                    "partition": change.partition.partition,
                    "before": change.before,
                    "after": change.after,
                    "lag": change.end - change.after,
                    "executed": options.execute,
                }
            )
    else:
        print_rows(
            ("group", "topic", "partition", "committed", "new", "lag"),
            [
                (options.group, *change.partition, change.before, change.after, change.end - change.after)
                for change in changes
            ],
            title=f"group {options.group}",
        )
    if not options.execute:
        note("nothing was changed: add --execute to commit these offsets")
