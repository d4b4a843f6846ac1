"""`tailrace tier orphans`: objects that no manifest names. Brokers delete them too, if they are there to do it."""

from __future__ import annotations

import argparse
import time

from tailrace.cli.output import count_text, note, print_json, print_rows
from tailrace.cli.plan.units import parse_duration
from tailrace.cli.times import time_text
from tailrace.model.ids import uuid_text
from tailrace.real.objects.bucket import OpenBucket
from tailrace.tier.reading.orphans import Verdict, find_orphans

# Longer than a broker lets an upload take, with all its tries.
_DEFAULT_DELAY_S = 3600.0


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than",
        type=parse_duration,
        default=_DEFAULT_DELAY_S,
        metavar="TIME",
        help="younger ones may be of a copy that is under way (default: 1h)",
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete orphans and old manifests: they are gone for good"
    )
    parser.add_argument(
        "--without-manifest",
        action="store_true",
        help="with --delete: also objects of partitions that have no manifest, such as those of deleted topics",
    )


async def run(bucket: OpenBucket, options: argparse.Namespace) -> int:
    now_ms = int(time.time() * 1000)
    found = await find_orphans(bucket.bucket, now_ms=now_ms, delay_ms=int(options.older_than * 1000))
    deleted = []
    if options.delete:
        verdicts = {Verdict.ORPHAN, Verdict.OLD_MANIFEST}
        if options.without_manifest:
            verdicts.add(Verdict.NO_MANIFEST)
        deleted = [each.facts.name for each in found.unnamed if each.verdict in verdicts]
        await bucket.bucket.store.delete(deleted)
    gone = set(deleted)
    if options.json:
        for each in found.unnamed:
            facts = {
                "object": each.facts.name,
                "bytes": each.facts.size_bytes,
                "modified_ms": each.facts.modified_ms,
                "topic": each.topic or None,
                "topic_id": uuid_text(each.owner.topic_id),
                "partition": each.owner.partition,
                "verdict": each.verdict.value,
                "is_deleted": each.facts.name in gone,
            }
            print_json(facts)
        return 0
    print_rows(
        ("object", "bytes", "modified", "topic", "verdict"),
        [
            (
                each.facts.name,
                each.facts.size_bytes,
                time_text(each.facts.modified_ms),
                each.topic or None,
                "deleted" if each.facts.name in gone else each.verdict.value,
            )
            for each in found.unnamed
        ],
    )
    if found.foreign:
        note(f"{count_text(len(found.foreign), 'object')} of others in the cluster's folder: not looked at")
    return 0
