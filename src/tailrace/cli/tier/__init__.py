"""`tailrace tier list|verify|orphans|recover`: what lies in the bucket of a cluster, without asking its brokers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from tailrace.cli import Actions, CommandError
from tailrace.cli.session import key_and_value
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import StoreError
from tailrace.real.objects.bucket import OpenBucket, open_bucket

DESCRIPTION = (
    "Look into the tier of a cluster, in its bucket: what lies there, whether it is whole, what nothing names; and "
    "make a new cluster of it."
)
EXAMPLES = """\
examples:
  tailrace tier list s3://bucket/prefix
  tailrace tier list file:///var/lib/tailrace/tier --topic orders --segments
  tailrace tier verify s3://bucket/prefix --set endpoint=http://127.0.0.1:9000 --set region=us-east-1
  tailrace tier orphans gs://bucket/prefix --older-than 1h --delete
  tailrace tier recover s3://bucket/prefix --data ./data --dry-run
  tailrace tier recover s3://bucket/prefix --config node-1.toml --replicas-on 1,2,3 --old-cluster-is-gone

No broker is asked: permission to read the bucket is all that is needed. Credentials come from the environment, as the
tools of the store have them (AWS_ACCESS_KEY_ID and so on); they do not belong on a command line.
"""

Work = Callable[[OpenBucket, argparse.Namespace], Awaitable[int]]


def register(parser: argparse.ArgumentParser) -> None:
    from tailrace.cli.tier import listing, orphans, recover, verifying

    actions = Actions(parser)
    for module, name, text in (
        (listing, "list", "list topics and partitions, with segments, bytes, offsets and times"),
        (verifying, "verify", "read everything, and check all sums and offsets"),
        (orphans, "orphans", "list objects that nothing names; delete them if asked"),
        (
            recover,
            "recover",
            "make the first node of a new cluster, with all topics, groups and offsets, of the bucket",
        ),
    ):
        action = actions.add(name, text, f"{name} s3://bucket/prefix")
        action.add_argument("url", metavar="URL", help="s3://BUCKET/PREFIX, gs://, az://, or file:///FOLDER")
        action.add_argument(
            "--set",
            type=key_and_value,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            dest="settings",
            help="what brokers have as rsm.config.NAME, such as endpoint or region; repeatable",
        )
        action.add_argument("--json", action="store_true", help="print JSON lines")
        module.register(action)
        work: Work = module.run
        action.set_defaults(run=lambda options, work=work: _run(work, options))


def _run(work: Work, options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_open_and_run(work, options))
    except KafkaError as error:
        raise CommandError(error.message) from None
    except (StoreError, StorageError) as error:
        raise CommandError(str(error)) from None


async def _open_and_run(work: Work, options: argparse.Namespace) -> int:
    bucket = await open_bucket(options.url, dict(options.settings))
    try:
        return await work(bucket, options)
    finally:
        bucket.close()


def add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this one (default: all); repeatable"
    )
