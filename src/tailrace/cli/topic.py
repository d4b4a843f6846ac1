"""`tailrace topic create|list|describe|alter|delete`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.cli import Actions
from tailrace.cli.balance.options import add_goal_options, add_pace_options
from tailrace.cli.output import count_text, note, print_json, print_rows
from tailrace.cli.session import add_client_work, key_and_value
from tailrace.client.admin import (
    BROKER_DEFAULT,
    CONFIG_SOURCES,
    RESOURCE_TOPIC,
    SOURCE_TOPIC,
    Admin,
    ConfigEntry,
)
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition, Uuid, uuid_text

DESCRIPTION = "Create, list, describe, alter and delete topics."
EXAMPLES = """\
examples:
  tailrace topic create orders --partitions 6 --set retention.ms=86400000
  tailrace topic list
  tailrace topic describe orders --json
  tailrace topic alter orders --partitions 12 --set cleanup.policy=compact --unset retention.ms
  tailrace topic delete orders
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_create(actions)
    _register_list(actions)
    _register_describe(actions)
    _register_alter(actions)
    _register_delete(actions)


def _add_action(
    actions: Actions,
    name: str,
    work: Callable[[Admin, argparse.Namespace], Awaitable[int]],
    help_text: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, lambda cluster, options: work(Admin(cluster), options))
    return parser


def _add_set_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a topic setting, by Kafka's name; repeatable",
    )


# --- create


def _register_create(actions: Actions) -> None:
    parser = _add_action(actions, "create", _create, "create topics", "create orders payments --partitions 6")
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument("--partitions", type=int, default=BROKER_DEFAULT, metavar="N", help="default: the broker's")
    parser.add_argument(
        "--replication-factor", type=int, default=BROKER_DEFAULT, metavar="N", help="default: the broker's"
    )
    _add_set_option(parser)
    parser.add_argument("--if-not-exists", action="store_true", help="no failure if a topic is there already")
    parser.add_argument("--validate-only", action="store_true", help="check everything, create nothing")
    parser.add_argument("--json", action="store_true", help="print what was created as JSON lines")


async def _create(admin: Admin, options: argparse.Namespace) -> int:
    configs = dict(options.set)
    for name in options.names:
        try:
            created = await admin.create_topic(
                name,
                partition_count=options.partitions,
                replication_factor=options.replication_factor,
                configs=configs,
                validate_only=options.validate_only,
            )
        except KafkaError as error:
            if options.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"topic {name} is there already")
                continue
            raise
        if options.json:
            facts = {
                "name": name,
                "id": uuid_text(Uuid(created.id)),
                "partitions": created.partition_count,
                "replication_factor": created.replication_factor,
                "validate_only": options.validate_only,
            }
            print_json(facts)
        else:
            verb = "could create" if options.validate_only else "created"
            print(f"{verb} topic {name} with {count_text(created.partition_count, 'partition')}")
    return 0


# --- list


def _register_list(actions: Actions) -> None:
    parser = _add_action(actions, "list", _list, "list topics", "list")
    parser.add_argument("--internal", action="store_true", help="also those that the cluster keeps for itself")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def _list(admin: Admin, options: argparse.Namespace) -> int:
    topics = [topic for topic in await admin.topics() if options.internal or not topic.is_internal]
    if options.json:
        for topic in topics:
            print_json(_summary(topic))
    else:
        print_rows(
            ("topic", "partitions", "replicas"),
            [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics],
        )
    return 0


def _summary(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": uuid_text(topic.id),
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
        "internal": topic.is_internal,
    }


def _replication_factor(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


# --- describe


def _register_describe(actions: Actions) -> None:
    parser = _add_action(
        actions, "describe", _describe, "show partitions, offsets and settings of topics", "describe orders"
    )
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument("--all-settings", action="store_true", help="also the settings that have their defaults")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def _describe(admin: Admin, options: argparse.Namespace) -> int:
    for topic in await admin.describe_topics(options.names):
        settings = [
            entry
            for entry in await admin.configs_of(RESOURCE_TOPIC, topic.name)
            if options.all_settings or entry.source == SOURCE_TOPIC
        ]
        offsets = await _offsets(admin.cluster, topic)
        if options.json:
            print_json(_description(topic, settings, offsets))
        else:
            _print_description(topic, settings, offsets)
    return 0


async def _offsets(cluster: Cluster, topic: TopicMetadata) -> dict[int, tuple[int, int]]:
    """The start and the end of each partition that has a leader."""
    led = [TopicPartition(topic.name, found.partition) for found in topic.partitions.values() if found.leader_id >= 0]
    consumer = Consumer(cluster)
    starts = await consumer.offsets_at(led, EARLIEST)
    ends = await consumer.offsets_at(led, LATEST)
    return {partition.partition: (starts[partition], ends[partition]) for partition in led}


def _description(
    topic: TopicMetadata, settings: list[ConfigEntry], offsets: dict[int, tuple[int, int]]
) -> dict[str, Any]:
    partitions = []
    for index, found in topic.partitions.items():
        start, end = offsets.get(index, (None, None))
        partitions.append(
            {
                "partition": index,
                "leader": found.leader_id,
                "leader_epoch": found.leader_epoch,
                "replicas": found.replicas,
                "isr": found.isr,
                "offline_replicas": found.offline_replicas,
                "log_start_offset": start,
                "high_watermark": end,
            }
        )
    facts = {
        entry.name: {"value": entry.value, "source": CONFIG_SOURCES.get(entry.source, "unknown")} for entry in settings
    }
    return _summary(topic) | {"partitions": partitions, "settings": facts}


def _print_description(topic: TopicMetadata, settings: list[ConfigEntry], offsets: dict[int, tuple[int, int]]) -> None:
    print_rows(
        ("topic", "partition", "leader", "replicas", "in sync", "start", "end"),
        [
            (topic.name, index, found.leader_id, found.replicas, found.isr, *offsets.get(index, (None, None)))
            for index, found in topic.partitions.items()
        ],
        title=f"topic {topic.name}, id {uuid_text(topic.id)}",
    )
    if settings:
        print_rows(
            ("topic", "setting", "value", "set by"),
            [(topic.name, entry.name, entry.value, CONFIG_SOURCES.get(entry.source, "unknown")) for entry in settings],
        )


# --- alter


def _register_alter(actions: Actions) -> None:
    parser = _add_action(
        actions, "alter", _alter, "add partitions, change settings", "alter orders --set retention.ms=3600000"
    )
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument("--partitions", type=int, metavar="N", help="how many there shall be; never fewer than now")
    parser.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="how many replicas each partition shall have; they are moved as `tailrace balance run` moves them",
    )
    _add_set_option(parser)
    parser.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="back to the setting's default; repeatable"
    )
    add_goal_options(parser)
    add_pace_options(parser)
    parser.add_argument("--validate-only", action="store_true", help="check everything, change nothing")


async def _alter(admin: Admin, options: argparse.Namespace) -> int:
    changes = dict(options.set)
    factor = options.replication_factor
    if options.partitions is None and factor is None and not changes and not options.unset:
        options.refuse("nothing to alter: give --partitions N, --replication-factor N, --set KEY=VALUE or --unset KEY")
    if factor is not None and factor < 1:
        options.refuse(f"a partition cannot have {factor} replicas")
    verb = "could change" if options.validate_only else "changed"
    if changes or options.unset:
        await admin.alter_configs(
            RESOURCE_TOPIC,
            options.name,
            changes=changes,
            removals=options.unset,
            validate_only=options.validate_only,
        )
        print(f"{verb} the settings of topic {options.name}: {', '.join([*changes, *options.unset])}")
    if options.partitions is not None:
        await admin.create_partitions(options.name, options.partitions, validate_only=options.validate_only)
        print(f"{verb} the partitions of topic {options.name}: {options.partitions} in all")
    if factor is not None:
        from tailrace.cli.balance.factor import change_factor

        moved = await change_factor(admin.cluster, options, options.name, factor)
        print(f"{verb} the replicas of topic {options.name}: {factor} of each partition, {moved} changed")
    return 0


# --- delete


def _register_delete(actions: Actions) -> None:
    parser = _add_action(actions, "delete", _delete, "delete topics with all their records", "delete orders")
    parser.add_argument("names", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="no failure if a topic is not there")


async def _delete(admin: Admin, options: argparse.Namespace) -> int:
    for name in options.names:
        try:
            await admin.delete_topic(name)
        except KafkaError as error:
            if options.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                note(f"topic {name} is not there")
                continue
            raise
        print(f"deleted topic {name}")
    return 0
