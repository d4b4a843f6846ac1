"""`tailrace queue set`, `redrive` and `purge`: what changes a queue."""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, note, print_json
from tailrace.client.admin import RESOURCE_GROUP, Admin
from tailrace.client.consumer import LATEST, Consumer
from tailrace.client.metadata import Cluster
from tailrace.client.shares.dead_letters import DeadLetters, find_topic
from tailrace.client.shares.queue import Queue
from tailrace.model.errors import ErrorCode, KafkaError


async def configure_queue(cluster: Cluster, options: argparse.Namespace) -> int:
    changes = dict(options.settings)
    if not changes and not options.unset:
        options.refuse("give a setting, as KEY=VALUE, or --unset KEY")
    await Admin(cluster).alter_configs(RESOURCE_GROUP, options.group, changes=changes, removals=options.unset)
    if options.json:
        print_json({"group": options.group, "set": changes, "unset": options.unset})
    else:
        print(f"{count_text(len(changes) + len(options.unset), 'setting')} of group {options.group} changed")
    return 0


async def redrive_queue(cluster: Cluster, options: argparse.Namespace) -> int:
    letters = await _letters_of(cluster, options.group)
    outcome = await letters.redrive(
        options.group,
        target=options.to,
        count_max=options.count,
        is_for_all_groups=options.all_groups,
        drops_lost=options.drop_lost,
    )
    if options.json:
        print_json(outcome._asdict())
    else:
        print(f"{count_text(outcome.redriven_count, 'record')} of {letters.topic} sent back")
        if outcome.dropped_count:
            print(
                f"{count_text(outcome.dropped_count, 'letter')} deleted of records that are gone or were sent already"
            )
    for problem in outcome.problems:
        note(f"left: {problem}")
    if outcome.problems:
        note("--all-groups sends letters of other groups too; --drop-lost deletes those of which nothing is left")
    return 1 if outcome.problems else 0


async def purge_queue(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.dead_letters:
        letters = await _letters_of(cluster, options.group)
        depths = await letters.depths()
        count = sum(each.size for each in depths.values())
        if options.execute:
            await letters.delete({at: depth.end for at, depth in depths.items() if depth.size})
        return _tell(options, count, f"dead letters in {letters.topic}")
    queue = Queue(cluster, options.group)
    partitions = await queue.look()
    count = sum(each.depth or 0 for each in partitions)
    if options.execute:
        ends = await Consumer(cluster).offsets_at([each.partition for each in partitions], LATEST)
        try:
            await queue.purge(ends)
        except KafkaError as error:
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise CommandError(
                    f"group {options.group} has members, which hold records: stop them first; see: tailrace group "
                    f"describe {options.group}"
                ) from None
            raise
    return _tell(options, count, f"records of queue {options.group}")


def _tell(options: argparse.Namespace, count: int, what: str) -> int:
    if options.json:
        print_json({"group": options.group, "count": count, "is_executed": options.execute})
    elif options.execute:
        print(f"{count:,} {what} are gone")
    else:
        print(f"{count:,} {what} would be gone; --execute does it")
    return 0


async def _letters_of(cluster: Cluster, group_id: str) -> DeadLetters:
    topic = await find_topic(cluster, group_id)
    if topic is None:
        raise CommandError(
            f"group {group_id} names no topic for dead letters: set its errors.deadletterqueue.topic.name; see "
            "docs/queues.md"
        )
    return DeadLetters(cluster, topic)
