"""`tailrace tier list`: what the newest manifests say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tailrace.cli import CommandError
from tailrace.cli.output import print_json, print_rows
from tailrace.cli.tier import add_topics
from tailrace.cli.times import time_text
from tailrace.model.ids import uuid_text
from tailrace.real.objects.bucket import OpenBucket
from tailrace.tier.metadata.manifest import Manifest

_HEADINGS = ("topic", "partition", "segments", "bytes", "start", "end", "newest record", "as of")


def register(parser: argparse.ArgumentParser) -> None:
    add_topics(parser)
    parser.add_argument("--segments", action="store_true", help="each segment, with its object")


async def run(bucket: OpenBucket, options: argparse.Namespace) -> int:
    manifests = await find(bucket, options.topic)
    if options.segments:
        _list_segments(bucket, manifests, as_json=options.json)
    elif options.json:
        for each in manifests:
            print_json(_facts(each))
    else:
        rows = [
            (*row, _time(newest), time_text(each.written_ms)) for each in manifests for *row, newest in [_row(each)]
        ]
        print_rows(_HEADINGS, rows)
    return 0


async def find(bucket: OpenBucket, topics: Sequence[str]) -> list[Manifest]:
    if not topics:
        return await bucket.bucket.manifests()
    found = []
    for topic in topics:
        manifests = await bucket.bucket.manifests(topic)
        if not manifests:
            raise CommandError(f"the tier has nothing of a topic {topic}; see all of them without --topic")
        found += manifests
    return found


def _row(manifest: Manifest) -> tuple[object, ...]:
    """Of what can be read: copies that overlap are all stored, and count as they are."""
    pieces = manifest.coverage().pieces
    return (
        manifest.topic,
        manifest.owner.partition,
        len(manifest.segments),
        sum(segment.object_bytes for segment in manifest.segments),
        pieces[0].start_offset if pieces else manifest.log_start_offset,
        pieces[-1].end_offset if pieces else manifest.log_start_offset,
        max((piece.segment.max_timestamp for piece in pieces), default=-1),
    )


def _facts(manifest: Manifest) -> dict[str, object]:
    topic, partition, segments, size_bytes, start, end, newest = _row(manifest)
    return {
        "topic": topic,
        "partition": partition,
        "topic_id": uuid_text(manifest.owner.topic_id),
        "segments": segments,
        "bytes": size_bytes,
        "start_offset": start,
        "end_offset": end,
        "log_start_offset": manifest.log_start_offset,
        "newest_timestamp": newest,
        "written_ms": manifest.written_ms,
        "settings": dict(manifest.settings),
        "manifest": manifest.name,
    }


def _list_segments(bucket: OpenBucket, manifests: Sequence[Manifest], *, as_json: bool) -> None:
    rows = []
    for manifest in manifests:
        read = {piece.segment.segment_id for piece in manifest.coverage().pieces}
        for each in manifest.segments:
            name = bucket.segments.name(manifest.owner, each.base_offset, each.segment_id)
            facts: dict[str, object] = {
                "topic": manifest.topic,
                "partition": manifest.owner.partition,
                "start_offset": each.base_offset,
                "end_offset": each.end_offset,
                "bytes": each.object_bytes,
                "newest_timestamp": each.max_timestamp,
                "is_read": each.segment_id in read,
                "object": name,
            }
            if as_json:
                print_json(facts)
            rows.append(
                (*list(facts.values())[:5], _time(each.max_timestamp), "yes" if facts["is_read"] else "no", name)
            )
    if not as_json:
        print_rows(("topic", "partition", "start", "end", "bytes", "newest record", "is read", "object"), rows)


def _time(timestamp: object) -> str | None:
    return time_text(timestamp) if isinstance(timestamp, int) and timestamp >= 0 else None
