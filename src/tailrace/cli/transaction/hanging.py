"""`tailrace transaction find-hanging` and `abort`.

An abort here is not a coordinator's decision: it lets readers of one partition go on, and nothing else. So it is
refused for a transaction that a coordinator knows, whose other partitions might have it committed.
"""

from __future__ import annotations

import argparse
from typing import Any

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.admin import OpenTransaction, TransactionAdmin
from tailrace.model.ids import PartitionIndex, TopicPartition


async def find_hanging_transactions(cluster: Cluster, options: argparse.Namespace) -> int:
    partitions, leaderless = await _partitions(cluster, options.topic)
    found = await TransactionAdmin(cluster).find_hanging(partitions, max_age_ms=int(options.max_age * 1000))
    if options.json:
        for each in found:
            facts = {"transactional_id": each.transactional_id, "age_ms": each.age_ms, "reason": each.reason}
            print_json({**_facts(each.transaction), **facts})
    elif found:
        print_rows(
            ("topic", "partition", "start offset", "producer", "epoch", "age", "id", "why"),
            [
                (
                    *each.transaction.partition,
                    each.transaction.start_offset,
                    each.transaction.producer_id,
                    each.transaction.producer_epoch,
                    f"{each.age_ms / 1000:.0f} s",
                    each.transactional_id,
                    each.reason,
                )
                for each in found
            ],
        )
    else:
        note("no transaction hangs")
    if leaderless:
        raise CommandError(f"not looked at, since they have no leader now: {', '.join(map(str, leaderless))}")
    return 0


async def _partitions(cluster: Cluster, topics: list[str] | None) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Those with a leader, and those without."""
    found = await cluster.refresh(topics)
    with_leader: list[TopicPartition] = []
    without: list[TopicPartition] = []
    for name, topic in sorted(found.items()):
        for index, partition in topic.partitions.items():
            where = TopicPartition(name, PartitionIndex(index))
            (with_leader if partition.leader_id >= 0 else without).append(where)
    return with_leader, without


async def abort_transactions(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = TransactionAdmin(cluster)
    where = TopicPartition(options.topic, PartitionIndex(options.partition))
    is_open = await admin.open_transactions([where])
    found = [each for each in is_open if each.start_offset == options.start_offset]
    if not found:
        offsets = ", ".join(str(each.start_offset) for each in is_open)
        there = f"those that are open there begin at {offsets}" if offsets else "none is open there"
        raise CommandError(f"no transaction of {where} began at offset {options.start_offset}: {there}")
    (hanging,) = found
    known = (await admin.coordinated([hanging])).get(hanging)
    if known is not None and not options.force:
        raise CommandError(
            f"this transaction does not hang: it is that of {known.transactional_id} on coordinator "
            f"{known.coordinator_id}, which is {known.state} and ends {known.timeout_ms / 1000:.0f} s after its begin "
            "at the latest; --force breaks it in this partition"
        )
    if options.execute:
        await admin.abort(hanging)
    if options.json:
        print_json({**_facts(hanging), "aborted": options.execute})
    else:
        what = f"producer {hanging.producer_id}, epoch {hanging.producer_epoch}, open since {hanging.start_offset}"
        print(f"{'aborted' if options.execute else 'would abort'} the transaction in {where}: {what}")
        if not options.execute:
            note("nothing was changed: add --execute")
    return 0


def _facts(found: OpenTransaction) -> dict[str, Any]:
    topic, partition = found.partition
    return {
        "topic": topic,
        "partition": partition,
        **{key: value for key, value in found._asdict().items() if key != "partition"},
    }
