"""`tailrace group describe`: members, what they have, how far they have got and how far behind they are."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from tailrace.cli.group.listing import lag_s
from tailrace.cli.output import count_text, is_terminal, print_json, print_rows
from tailrace.client.consumer import LATEST, Consumer
from tailrace.client.groups.admin import SHARE, DescribedGroup, GroupAdmin
from tailrace.client.groups.progress import Progress, find_progress, total_lag
from tailrace.client.metadata import Cluster
from tailrace.client.shares.admin import ShareOffset
from tailrace.model.ids import TopicPartition

_CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"


async def describe_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = GroupAdmin(cluster)
    while True:
        group_ids = options.groups or [group.group_id for group in await admin.groups()]
        groups = [await admin.describe(group_id) for group_id in group_ids]
        found = [(group, await _progress(admin, group)) for group in groups]
        queues = {each.group_id: await admin.share_offsets(each.group_id) for each in groups if each.type == SHARE}
        if options.watch is not None and not options.json and is_terminal(sys.stdout):
            print(_CLEAR_SCREEN, end="")
        for group, progress in found:
            if options.json:
                print_json(_facts(group, progress) | _queue_facts(queues.get(group.group_id)))
            elif group.type == SHARE:
                _print_queue(group, queues[group.group_id])
                _print_members(group)
            else:
                _print_progress(group, progress)
                _print_members(group)
                _print_tasks(group)
        if options.watch is None:
            return 0
        sys.stdout.flush()
        await asyncio.sleep(options.watch)


async def _progress(admin: GroupAdmin, group: DescribedGroup) -> list[Progress]:
    if group.type == SHARE:
        return []  # It has no committed offsets: where it stands in a queue is another question.
    found = await admin.offsets_of(group.group_id, lambda offsets: offsets.fetch())
    committed = {partition: each.offset for partition, each in found.items()}
    owned = {partition for member in group.members for partition in member.assignment}
    ends = await _ends(admin.cluster, {*committed, *owned})
    judged = await admin.lag(group.group_id)
    return find_progress(group.members, committed, ends, None if judged is None else judged.partitions)


async def _ends(cluster: Cluster, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of the partitions that still exist and have a leader."""
    topics = await cluster.refresh(None)
    led = [
        partition
        for partition in sorted(partitions)
        if partition.topic in topics
        and partition.partition in topics[partition.topic].partitions
        and topics[partition.topic].partitions[partition.partition].leader_id >= 0
    ]
    return await Consumer(cluster).offsets_at(led, LATEST)


def _print_progress(group: DescribedGroup, progress: list[Progress]) -> None:
    title = (
        f"group {group.group_id}: {group.type}, {group.state}, {count_text(len(group.members), 'member')}, "
        f"lag {total_lag(progress):,}, coordinator {group.coordinator_id}"
    )
    if not progress:
        print(f"{title}: no committed offsets")
        return
    print_rows(
        ("group", "topic", "partition", "committed", "end", "lag", "member", "host", "lag s", "verdict"),
        [
            (
                group.group_id,
                each.partition.topic,
                each.partition.partition,
                each.committed,
                each.end,
                each.lag,
                each.member and each.member.member_id,
                each.member and each.member.client_host,
                lag_s(each.judged),
                each.judged and each.judged.verdict,
            )
            for each in progress
        ],
        title=title,
    )


def _print_queue(group: DescribedGroup, offsets: list[ShareOffset]) -> None:
    lag = sum(each.lag or 0 for each in offsets)
    title = (
        f"group {group.group_id}: {group.type}, {group.state}, {count_text(len(group.members), 'member')}, "
        f"lag {lag:,}, coordinator {group.coordinator_id}"
    )
    readers: dict[TopicPartition, int] = {}
    for member in group.members:
        for partition in member.assignment:
            readers[partition] = readers.get(partition, 0) + 1
    print_rows(
        ("group", "topic", "partition", "start", "lag", "members"),
        [
            (group.group_id, *each.partition, each.start_offset, each.lag, readers.get(each.partition, 0))
            for each in offsets
        ],
        title=title,
    )


def _queue_facts(offsets: list[ShareOffset] | None) -> dict[str, Any]:
    if offsets is None:
        return {}
    return {
        "queue": [{**each.partition._asdict(), "start_offset": each.start_offset, "lag": each.lag} for each in offsets]
    }


def _print_members(group: DescribedGroup) -> None:
    if not group.members:
        return
    print_rows(
        ("group", "member", "static name", "client", "host", "epoch", "partitions", "to have"),
        [
            (
                group.group_id,
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.epoch,
                len(each.assignment),
                len(each.assignment if each.target is None else each.target),
            )
            for each in group.members
        ],
        title=f"members, assigned by {group.assignor or 'nobody yet'}"
        + ("" if group.epoch is None else f", group epoch {group.epoch}"),
    )


def _print_tasks(group: DescribedGroup) -> None:
    """Of an application of Kafka Streams."""
    tasks = [(each.member_id, each.tasks) for each in group.members if each.tasks is not None]
    if tasks:
        print_rows(
            ("group", "member", "process", "active tasks", "standby tasks"),
            [
                (group.group_id, member_id, each.process_id, " ".join(each.active), " ".join(each.standby))
                for member_id, each in tasks
            ],
            title="tasks",
        )


def _facts(group: DescribedGroup, progress: list[Progress]) -> dict[str, Any]:
    return {
        **group._asdict(),
        "members": [
            {
                **member._asdict(),
                "assignment": [str(partition) for partition in member.assignment],
                "tasks": member.tasks and member.tasks._asdict(),
                "target": None if member.target is None else [str(partition) for partition in member.target],
            }
            for member in group.members
        ],
        "lag": total_lag(progress),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "lag_s": lag_s(each.judged),
                "verdict": each.judged and each.judged.verdict,
                "member_id": each.member and each.member.member_id,
            }
            for each in progress
        ],
    }
