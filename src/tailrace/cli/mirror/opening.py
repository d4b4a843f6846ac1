"""`tailrace mirror failover` and `promote`: mirrors become topics of their own, and it is told what they have."""

from __future__ import annotations

import argparse
import asyncio

from tailrace.cli import CommandError
from tailrace.cli.mirror.fencing import fence_source
from tailrace.cli.output import count_text, note, print_rows
from tailrace.cli.times import time_text
from tailrace.client.metadata import Cluster
from tailrace.client.mirrors.admin import DescribedLink, MirrorAdmin

_LOOK_SECONDS = 0.1


async def fail_over(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = MirrorAdmin(cluster)
    before = (await admin.describe(options.name))[options.name]
    topics = await admin.open_topics(options.name, "failover", options.topics, validate_only=options.dry_run)
    if not topics:
        note(f"nothing is mirrored by the link {options.name}: there is nothing to fail over")
        return 0
    after = before if options.dry_run else await _wait_open(admin, options.name, topics, options.timeout)
    _tell_loss(before, after, topics)
    verb = "would" if options.dry_run else "can now"
    note(f"{count_text(len(topics), 'topic')} {verb} take records of their own")
    return 0


async def promote(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = MirrorAdmin(cluster)
    action = "cancel" if options.cancel else "promote"
    if options.fence_source and not options.dry_run:
        link = (await admin.describe(options.name))[options.name]
        await fence_source(
            link, options.topics or [name for name, each in link.topics.items() if not each.is_open], options
        )
    topics = await admin.open_topics(options.name, action, options.topics, validate_only=options.dry_run)
    if options.cancel or options.dry_run:
        note(f"{count_text(len(topics), 'topic')} {'would be' if options.dry_run else 'to be'} {_DONE[action]}")
        return 0
    waiting = count_text(len(topics), "topic")
    note(f"{waiting} to be opened, once all that the source has is here; its producers have to be stopped")
    if options.wait is not None:
        link = (await admin.describe(options.name))[options.name]
        asked = [name for name, topic in link.topics.items() if name in topics or topic.state == "promoting"]
        chosen = [name for name in asked if not options.topics or name in options.topics]
        await _wait_open(admin, options.name, chosen, options.wait)
        note(f"{count_text(len(chosen), 'topic')} can now take records of their own")
    return 0


async def cut(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = MirrorAdmin(cluster)
    link = (await admin.describe(options.name))[options.name]
    stopped = {
        name: [index for index, each in sorted(topic.partitions.items()) if each.is_stopped]
        for name, topic in link.topics.items()
    }
    topics = options.topics or [name for name, indexes in stopped.items() if indexes]
    if not topics:
        note(f"no partition of the link {options.name} has stopped: there is nothing to cut")
        return 0
    changed = await admin.open_topics(options.name, "cut", topics, validate_only=options.dry_run)
    for name in changed:
        where = ", ".join(map(str, stopped.get(name, []))) or "none that is known"
        note(f"{name}: what its source does not have {_WOULD[options.dry_run]} cut, of partitions {where}")
    note(f"it is saved to {', '.join(f'{name}.cut' for name in changed) or 'nothing'} first")
    return 0


_WOULD = {True: "would be", False: "is"}
_DONE = {"cancel": "mirrored on", "promote": "promoted"}


async def _wait_open(admin: MirrorAdmin, name: str, topics: list[str], seconds: float) -> DescribedLink:
    """Until each partition takes records of its own."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        link = (await admin.describe(name))[name]
        closed = [
            topic
            for topic in topics
            if (found := link.topics.get(topic)) is not None
            and not (found.is_told and all(each.opened_offset >= 0 for each in found.partitions.values()))
        ]
        if not closed:
            return link
        if loop.time() >= deadline:
            problems = "".join(f"\n  {problem}" for problem in link.problems)
            raise CommandError(
                f"after {seconds:g} s {len(closed)} topics are not open yet ({', '.join(closed[:5])}). It goes on: "
                f"look again with tailrace mirror describe {name}{problems}"
            )
        await asyncio.sleep(_LOOK_SECONDS)


def _tell_loss(before: DescribedLink, after: DescribedLink, topics: list[str]) -> None:
    rows = []
    for name in topics:
        known = before.topics.get(name)
        for index, partition in sorted(after.topics[name].partitions.items()):
            was = known.partitions.get(index) if known is not None else None
            end = partition.opened_offset if partition.opened_offset >= 0 else partition.high_watermark
            source_end = was.source_end_offset if was is not None else -1
            rows.append(
                (
                    name,
                    index,
                    end - 1,
                    time_text(was.last_timestamp) if was is not None and was.last_timestamp >= 0 else None,
                    max(0, source_end - end) if source_end >= 0 else None,
                    [each.producer_id for each in was.open_transactions] if was is not None else None,
                )
            )
    headings = ("topic", "partition", "last offset", "last time", "known to be missing", "aborted producers")
    print_rows(headings, rows)
