"""`tailrace queue list`, `describe` and `peek`: nothing of it touches a delivery."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tailrace.cli.output import print_json, print_rows
from tailrace.cli.records import ENCODINGS, Shape, record_json
from tailrace.client.groups.admin import SHARE, GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.client.shares.dead_letters import DeadLetters, Depth, find_topic, read_letter
from tailrace.client.shares.queue import Queue, QueuePartition, read_first
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record


async def list_queues(cluster: Cluster, options: argparse.Namespace) -> int:
    rows = []
    for group in await GroupAdmin(cluster).groups(types=[SHARE]):
        partitions = await Queue(cluster, group.group_id).look()
        letters, depths = await _dead_letters(cluster, group.group_id)
        waiting = None if depths is None else sum(each.size for each in depths.values())
        facts = {
            "group": group.group_id,
            "state": group.state,
            "depth": _sum(each.depth for each in partitions),
            "out": _sum(None if each.out is None else each.out.held_count for each in partitions),
            "oldest_s": max((age for age in (await _ages(cluster, group.group_id, partitions)).values()), default=None),
            "dead_letter_topic": letters,
            "dead_letters": waiting,
        }
        rows.append(facts)
    if options.json:
        for facts in rows:
            print_json(facts)
    else:
        headings = ("group", "state", "depth", "out", "oldest s", "dead letters in", "dead letters")
        print_rows(headings, [list(facts.values()) for facts in rows])
    return 0


async def describe_queue(cluster: Cluster, options: argparse.Namespace) -> int:
    partitions = await Queue(cluster, options.group).look()
    ages = await _ages(cluster, options.group, partitions)
    letters, depths = await _dead_letters(cluster, options.group)
    if options.json:
        for each in partitions:
            print_json(_facts(each, ages.get(each.partition)))
        if letters is not None:
            print_json({"dead_letter_topic": letters, "dead_letters": _total(depths)})
        return 0
    print_rows(
        ("topic", "partition", "start", "depth", "out", "delayed", "letters owed", "oldest s", "problem"),
        [list(_facts(each, ages.get(each.partition)).values()) for each in partitions],
        title=f"queue {options.group}: depth {_sum(each.depth for each in partitions) or 0:,}",
    )
    if letters is not None:
        state = "which does not exist yet" if depths is None else f"{_total(depths):,}"
        print(f"dead letters in {letters}: {state}")
    return 0


def _facts(each: QueuePartition, age_s: float | None) -> dict[str, Any]:
    out = each.out
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.start_offset,
        "depth": each.depth,
        "out": None if out is None else out.held_count,
        "delayed": None if out is None else out.delayed_count,
        "letters_owed": None if out is None else out.dead_count,
        "oldest_s": age_s,
        "problem": None if out is None else out.failure,
    }


async def _ages(cluster: Cluster, group_id: str, partitions: Sequence[QueuePartition]) -> dict[TopicPartition, float]:
    """How old the first record of each partition is that is not done with, in seconds."""
    now_ms = cluster.ports.clock.wall_ms()
    first = await Queue(cluster, group_id).peek(partitions, 1)
    return {at: round(max(0.0, now_ms - records[0].timestamp) / 1000, 1) for at, records in first.items() if records}


async def _dead_letters(cluster: Cluster, group_id: str) -> tuple[str | None, dict[TopicPartition, Depth] | None]:
    """The topic that the group names for them, and how many there are in each partition; None if it is not there."""
    topic = await find_topic(cluster, group_id)
    if topic is None:
        return None, None
    try:
        return topic, await DeadLetters(cluster, topic).depths()
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return topic, None
        raise


def _total(depths: dict[TopicPartition, Depth] | None) -> int:
    return sum(each.size for each in (depths or {}).values())


def _sum(counts: Any) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


async def peek_queue(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.dead_letters:
        found = await _first_letters(cluster, options.group, options.count)
    else:
        queue = Queue(cluster, options.group)
        found = await queue.peek(await queue.look(), options.count)
    encode = ENCODINGS[options.value_encoding]
    shape = Shape(encode, encode, b"")
    for partition, records in sorted(found.items()):
        for record in records:
            print(_line(partition, record, shape, options))
    return 0


async def _first_letters(cluster: Cluster, group_id: str, count: int) -> dict[TopicPartition, list[Record]]:
    topic, depths = await _dead_letters(cluster, group_id)
    deep = {at: depth.start for at, depth in (depths or {}).items() if depth.size}
    return await read_first(cluster, deep, count) if topic else {}


def _line(partition: TopicPartition, record: Record, shape: Shape, options: argparse.Namespace) -> str:
    if options.json:
        return record_json(partition.topic, partition.partition, record, shape)
    letter = read_letter(record) if options.dead_letters else None
    key = "" if record.key is None else f"{shape.key_of(record).decode()} = "
    content = f"{key}{shape.value_of(record).decode()}"
    if letter is None:
        return f"{partition} {record.offset}: {content}"
    where = f"{letter.source} {letter.offset} of {letter.group_id}"
    copy = f": {content}" if letter.has_copy else ""
    return f"{partition} {record.offset}: {where}, {letter.delivery_count} deliveries, {letter.message}{copy}"
