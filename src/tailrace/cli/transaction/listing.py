"""`tailrace transaction list` and `describe`."""

from __future__ import annotations

import argparse

from tailrace.cli.output import print_json, print_rows
from tailrace.cli.times import time_text
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.admin import TransactionAdmin


async def list_transactions(cluster: Cluster, options: argparse.Namespace) -> int:
    found = await TransactionAdmin(cluster).transactions(
        states=options.state,
        producer_ids=options.producer_id,
        longer_than_ms=-1 if options.longer_than is None else int(options.longer_than * 1000),
        pattern=options.pattern,
    )
    if options.json:
        for each in found:
            print_json(each._asdict())
    else:
        print_rows(("id", "producer", "state", "coordinator"), found)
    return 0


async def describe_transactions(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = TransactionAdmin(cluster)
    found = [await admin.describe(transactional_id) for transactional_id in options.transactional_ids]
    if options.json:
        for each in found:
            print_json({**each._asdict(), "partitions": [str(partition) for partition in each.partitions]})
        return 0
    print_rows(
        ("id", "state", "producer", "epoch", "timeout", "began (UTC)", "coordinator", "partitions"),
        [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.producer_epoch,
                f"{each.timeout_ms / 1000:g} s",
                time_text(each.start_ms) if each.start_ms >= 0 else None,
                each.coordinator_id,
                each.partitions,
            )
            for each in found
        ],
    )
    return 0
