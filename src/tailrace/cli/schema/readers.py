"""Who would break: the groups that read a subject's topic now."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError

_SUFFIXES = ("-value", "-key")


class TopicReader(NamedTuple):
    group_id: str
    members: int


def topic_of(subject: str) -> str | None:
    """By the usual strategy of names; None if the name does not tell."""
    bare = subject.rpartition(":")[2]
    return next((bare.removesuffix(suffix) for suffix in _SUFFIXES if bare.endswith(suffix)), None)


async def find_readers(cluster: Cluster, topic: str) -> list[TopicReader]:
    admin = GroupAdmin(cluster)
    found = []
    for group in await admin.groups():
        try:
            described = await admin.describe(group.group_id)
        except KafkaError:
            continue  # It has just ended, or is not ours to see.
        members = sum(any(each.topic == topic for each in member.assignment) for member in described.members)
        if members:
            found.append(TopicReader(group.group_id, members))
    return sorted(found)
