"""The topics that an application needs beside those that it reads: made at its start, or its start fails."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.kit.admin import Admin
from tailrace.model.errors import ErrorCode, KafkaError

# What a moved record has in its headers beyond what it came with, at most: a topic that takes the one takes the other.
HEADERS_BYTES_MAX = 64 * 1024
_MAX_MESSAGE_BYTES = "max.message.bytes"
# Dead letters wait for a person, who may be away for longer than a topic keeps its records by default.
KEPT_FOR_EVER = {"retention.ms": "-1"}


class TopicMissingError(KafkaError):
    """An application cannot start without this topic."""


async def prepare_topics(admin: Admin, source: str, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Makes those that are not there, each with its settings, and with as many partitions as the source has."""
    known = await admin.topics()
    if source not in known:
        raise TopicMissingError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {source} to consume: create it with: tailrace topic create {source}",
        )
    (described,) = await admin.describe_topics([source])
    count = len(described.partitions)
    missing = [name for name in wanted if name not in known]
    if missing:
        roomy = await _roomy(admin, source)
        for name in missing:
            await _create(admin, name, count, {**roomy, **wanted[name]}, source)


async def _roomy(admin: Admin, source: str) -> dict[str, str]:
    try:
        largest = int((await admin.topic_config(source)).get(_MAX_MESSAGE_BYTES) or 0)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # Who may not look takes the broker's default.
            raise
        return {}
    return {_MAX_MESSAGE_BYTES: str(min(largest + HEADERS_BYTES_MAX, 2**31 - 1))} if largest else {}


async def _create(admin: Admin, name: str, partitions: int, config: Mapping[str, str], source: str) -> None:
    try:
        await admin.create_topic(name, partitions=partitions, config=config, exist_ok=True)
    except KafkaError as error:
        settings = " ".join(f"--set {key}={value}" for key, value in config.items())
        raise TopicMissingError(
            error.code,
            f"the topic {name}, which the application needs beside {source}, is not there and cannot be created: "
            f"{error.message or error.code.name}. Let somebody who may do so create it: "
            f"tailrace topic create {name} --partitions {partitions} {settings}",
        ) from error
