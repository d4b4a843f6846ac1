"""`tailrace tier recover`: the first node of a new cluster, made of what the bucket has of one that is gone.

    survey      what there is, where each partition ends, what is lost: told before anything is done
    take over   the marker of the bucket gets a new generation: brokers of before copy and delete nothing from then on
    write       the data folder; see `broker.tier.recovery.folder`

Whatever ends it, it can be run again. Without --old-cluster-is-gone the bucket is left as it is, and the new cluster
only reads there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, note, print_json, print_rows
from tailrace.cli.times import time_text
from tailrace.model.ids import Uuid, uuid_text
from tailrace.real.objects.bucket import OpenBucket
from tailrace.tier.format.marker import Claim
from tailrace.tier.recovery.plan import PartitionPlan, RecoveryPlan
from tailrace.tier.recovery.survey import survey, take_over

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig, Endpoint


def register(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", metavar="DIR", help="the new data folder, for `tailrace up --data DIR --tier URL`")
    where.add_argument(
        "-c", "--config", metavar="FILE", help="settings of the new cluster's first node, a broker and controller"
    )
    parser.add_argument(
        "--old-cluster-is-gone",
        action="store_true",
        help="no broker of it runs any more: the new cluster takes the bucket over, copies and deletes there. Without "
        "it, it only reads",
    )
    parser.add_argument(
        "--replicas-on",
        type=_node_ids,
        default=(),
        metavar="ID,ID",
        help="node ids that every partition gets replicas on, that of --config among them (default: it alone)",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this one (default: all); repeatable"
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on where objects in the middle of a partition are gone, or a manifest or an export is damaged",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be recovered; change nothing")


async def run(bucket: OpenBucket, options: argparse.Namespace) -> int:
    from tailrace.broker.tier.recovery.folder import check_folders, write_folders

    config, controller = _read_node(options)
    replicas = options.replicas_on or (config.node_id,)
    if config.node_id not in replicas:
        raise CommandError(f"--replicas-on does not name the first node, {config.node_id}")
    ports = bucket.ports
    check_folders(ports.disk, config)
    plan = await survey(bucket.bucket, bucket.segments, wanted=options.topic, accepts_loss=options.accept_loss)
    if not plan.topics:
        raise CommandError("there is nothing to recover: the bucket has no manifest and no export of a topic")
    _tell(plan, as_json=options.json)
    if options.dry_run:
        return 0
    claim = Claim(may_write=False)
    if options.old_cluster_is_gone:
        # The later of two is the greater (`tier.format.marker`).
        name = f"{ports.clock.wall_ms()}-{uuid_text(Uuid(ports.random.uuid()))}"
        claim = await take_over(bucket.bucket, name)
    await asyncio.to_thread(write_folders, ports, config, plan, claim, replicas=replicas, controller=controller)
    _tell_end(config, options, claim)
    return 0


def _node_ids(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise argparse.ArgumentTypeError(f"{text}: expected different node ids, such as 1,2,3")
    return tuple(map(int, words))


# ---- the first node


def _read_node(options: argparse.Namespace) -> tuple[BrokerConfig, Endpoint | None]:
    """With the address of its controller, where others are to join its quorum."""
    if options.data is not None:
        return _alone(options), None
    from tailrace.cli.node.format import own_endpoint
    from tailrace.cli.node.settings_file import read_settings

    config = read_settings(options.config)
    if {"broker", "controller"} - set(config.process_roles):
        raise CommandError(
            f"{options.config}: the first node of a recovered cluster has process.roles=broker,controller. Others are "
            "formatted with the same --cluster-id and join it"
        )
    url = config.remote_log_storage_url or ""
    if not config.remote_log_storage_system_enable or url.rstrip("/") != options.url.rstrip("/"):
        raise CommandError(
            f"{options.config} has to have this bucket: remote.log.storage.system.enable = true and "
            f"remote.log.storage.url = {options.url}"
        )
    if config.controller_quorum_voters:
        raise CommandError(
            f"{options.config}: the quorum begins with this node alone: name it in "
            "controller.quorum.bootstrap.servers, not in controller.quorum.voters; other controllers join later"
        )
    return config, own_endpoint(config) if config.controller_quorum_bootstrap_servers else None


def _alone(options: argparse.Namespace) -> BrokerConfig:
    from tailrace.broker.single_node import single_node_settings
    from tailrace.model.config import parse_broker_config

    settings = single_node_settings("127.0.0.1", 9092, os.path.abspath(options.data))
    tier = {"remote.log.storage.system.enable": "true", "remote.log.storage.url": options.url}
    return parse_broker_config(settings | tier)


# ---- what is told


_HEADINGS = ("topic", "partition", "start", "end", "newest record", "lost at least", "as of")


def _tell(plan: RecoveryPlan, *, as_json: bool) -> None:
    if as_json:
        for each in plan.partitions:
            print_json(_facts(each))
        print_json(
            {
                "groups": len({each.group_id for each in plan.offsets}),
                "offsets": len(plan.offsets),
                "offsets_lowered": len(plan.lowered),
                "groups_as_of_ms": plan.groups_as_of_ms,
                "deleted_topics": list(plan.left_out),
            }
        )
        return
    print_rows(_HEADINGS, [_row(each) for each in plan.partitions])
    groups = count_text(len({each.group_id for each in plan.offsets}), "group")
    if plan.groups_as_of_ms < 0:
        note("the bucket has no export of groups: what they have committed is lost")
    else:
        note(f"committed offsets of {groups}, as of {time_text(plan.groups_as_of_ms)}")
    if plan.lowered:
        note(
            f"{count_text(len(plan.lowered), 'committed offset')} lay beyond the end of a partition: it is the end now"
        )
    for name in plan.left_out:
        note(f"topic {name} was deleted before the last export, and is left out; --topic {name} brings it back")


def _row(partition: PartitionPlan) -> tuple[object, ...]:
    return (
        partition.topic,
        partition.owner.partition,
        partition.log_start_offset,
        partition.end_offset,
        time_text(partition.newest_ms) if partition.newest_ms >= 0 else None,
        max(0, partition.seen_end_offset - partition.end_offset),
        time_text(partition.as_of_ms) if partition.as_of_ms >= 0 else None,
    )


def _facts(partition: PartitionPlan) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.owner.partition,
        "start_offset": partition.log_start_offset,
        "end_offset": partition.end_offset,
        "newest_timestamp": partition.newest_ms,
        "lost_records_min": max(0, partition.seen_end_offset - partition.end_offset),
        "as_of_ms": partition.as_of_ms,
        "leader_epoch": partition.leader_epoch,
    }


def _tell_end(config: BrokerConfig, options: argparse.Namespace, claim: Claim) -> None:
    if claim.may_write:
        note(f"the bucket belongs to the recovered cluster now, as generation {claim.generation}")
    else:
        note("the bucket is only read: nothing will be copied there (--old-cluster-is-gone takes it over)")
    start = (
        f"tailrace up --data {options.data} --tier {options.url}"
        if options.data
        else (f"tailrace broker --config {options.config}")
    )
    note(f"node {config.node_id} is ready to start: {start}")
