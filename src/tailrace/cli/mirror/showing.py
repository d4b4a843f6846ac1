"""`tailrace mirror list` and `describe`."""

from __future__ import annotations

import argparse
from typing import Any

from tailrace.cli.output import note, print_json, print_rows
from tailrace.client.metadata import Cluster
from tailrace.client.mirrors.admin import DescribedLink, MirrorAdmin, MirroredTopic, MirrorPartition


async def list_links(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = MirrorAdmin(cluster)
    links = await admin.describe()
    rows = []
    for name, link in sorted(links.items()):
        followed = [topic for topic in link.topics.values() if topic.state != "open"]
        facts = {
            "link": name,
            "state": _state(link),
            "source_cluster_id": link.source_cluster_id,
            "topics": len(followed),
            "lag": sum(topic.lag for topic in followed),
            "behind_ms": _behind_ms(followed),
            "problems": len(_problems(link)),
        }
        if options.json:
            print_json(facts)
        rows.append([_seconds(value) if key == "behind_ms" else value for key, value in facts.items()])
    if not options.json:
        print_rows(("link", "state", "source", "mirrors", "lag", "behind", "problems"), rows)
    for name, cluster_id in sorted((await admin.closed()).items()):
        note(f"{name} was handed over to the cluster {cluster_id}: it takes no records of clients here")
    return 0


async def describe_link(cluster: Cluster, options: argparse.Namespace) -> int:
    link = (await MirrorAdmin(cluster).describe(options.name))[options.name]
    if options.json:
        for topic in link.topics.values():
            for index, partition in sorted(topic.partitions.items()):
                print_json(_facts(topic, index, partition))
        return 0
    note(f"the link {link.name} to the cluster {link.source_cluster_id} at {link.settings.get('bootstrap.servers')}")
    note(f"it is {_state(link)}")
    for problem in _problems(link):
        note(f"problem: {problem}")
    headings = (
        "topic",
        "partition",
        "state",
        "start",
        "end",
        "source end",
        "lag",
        "lag bytes",
        "behind",
        "bytes/s",
        "problem",
    )
    rows = []
    for topic in link.topics.values():
        for index, partition in sorted(topic.partitions.items()):
            facts = _facts(topic, index, partition)
            cells = {**facts, "behind_ms": _seconds(facts["behind_ms"])}
            names = ("topic", "partition", "state", "log_start_offset", "high_watermark", "source_end_offset", "lag")
            rows.append([cells[each] for each in (*names, "lag_bytes", "behind_ms", "bytes_per_second", "problem")])
    print_rows(headings, rows)
    return 0


def _facts(topic: MirroredTopic, index: int, partition: MirrorPartition) -> dict[str, Any]:
    is_known = partition.source_end_offset >= 0
    return {
        "topic": topic.name,
        "source_topic": topic.source_topic,
        "partition": index,
        "state": "stopped" if partition.is_stopped else topic.state,
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "source_end_offset": partition.source_end_offset if is_known else None,
        "lag": max(0, partition.source_end_offset - partition.high_watermark) if is_known else None,
        "lag_bytes": partition.lag_bytes if partition.lag_bytes >= 0 else None,
        "behind_ms": partition.behind_ms,
        "bytes_per_second": partition.bytes_per_second,
        "open_transactions": [each.producer_id for each in partition.open_transactions],
        "problem": partition.problem,
    }


def _state(link: DescribedLink) -> str:
    return "paused" if link.is_paused else "at work"


def _problems(link: DescribedLink) -> list[str]:
    found = list(link.problems)
    for topic in link.topics.values():
        for index, partition in sorted(topic.partitions.items()):
            if partition.problem is not None:
                found.append(f"{topic.name}-{index}: {partition.problem}")
    return found


def _behind_ms(topics: list[MirroredTopic]) -> int:
    told = [topic.behind_ms for topic in topics]
    return -1 if not told or -1 in told else max(told)


def _seconds(milliseconds: object) -> str:
    return f"{milliseconds / 1000:.1f} s" if isinstance(milliseconds, int) and milliseconds >= 0 else "-"
