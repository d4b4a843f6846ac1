"""`tailrace tier verify`: reads all that manifests name; the exit code is 1 if something is missing or damaged."""

from __future__ import annotations

import argparse

from tailrace.cli.output import ProgressBar, count_text, note, print_json
from tailrace.cli.tier import add_topics
from tailrace.cli.tier.listing import find
from tailrace.real.objects.bucket import OpenBucket
from tailrace.tier.reading.verification import Verification


def register(parser: argparse.ArgumentParser) -> None:
    add_topics(parser)


async def run(bucket: OpenBucket, options: argparse.Namespace) -> int:
    manifests = await find(bucket, options.topic)
    total_bytes = sum(segment.size_bytes for manifest in manifests for segment in manifest.segments)
    problems = 0
    with ProgressBar("verified", total_bytes, "bytes") as bar:
        checked = Verification(bucket.bucket, bucket.segments, on_bytes=lambda _: bar.show(checked.size_bytes))
        for manifest in manifests:
            async for problem in checked.partition(manifest):
                problems += 1
                if options.json:
                    print_json(problem._asdict())
                else:
                    offsets = f"offsets {problem.start_offset} to {problem.end_offset - 1}"
                    print(f"{problem.topic}-{problem.partition}, {offsets}: {problem.object_name}: {problem.text}")
    if options.json:
        print_json(
            {
                "partitions": len(manifests),
                "segments": checked.segments,
                "bytes": checked.size_bytes,
                "removed_meanwhile": checked.removed,
                "problems": problems,
            }
        )
    else:
        whole = f"{count_text(checked.segments, 'segment')} of {count_text(len(manifests), 'partition')} are whole"
        removed = f"; {checked.removed:,} were removed meanwhile" if checked.removed else ""
        found = f"; {count_text(problems, 'problem')}" if problems else ""
        note(f"{whole}{removed}{found}")
    return 1 if problems else 0
