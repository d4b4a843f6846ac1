"""Queues: share groups with their depth, what is out, and dead letters, which can be sent back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, change, confirmed, done, number, show
from tailrace.client.groups.admin import SHARE, GroupAdmin, ListedGroup
from tailrace.client.metadata import Cluster
from tailrace.client.shares.dead_letters import DeadLetters, Letter, find_topic, read_letter
from tailrace.client.shares.queue import Queue, QueuePartition, read_first
from tailrace.model.errors import ErrorCode, KafkaError

_QUEUES_MAX = 50
_PARTITIONS_MAX = 1000
# Shown of each partition of a topic of dead letters, and of all together.
_LETTERS_OF_PARTITION, _LETTERS_MAX = 20, 100


class Waiting(NamedTuple):
    """Dead letters of a group: where, and how many; None if the topic is not there."""

    topic: str
    total: int | None
    letters: list[Letter]


class Row(NamedTuple):
    group: ListedGroup
    partitions: list[QueuePartition]
    waiting: Waiting | None
    problem: str | None

    @property
    def depth(self) -> int:
        return sum(each.depth or 0 for each in self.partitions)

    @property
    def out(self) -> int:
        return sum(each.out.held_count for each in self.partitions if each.out is not None)

    @property
    def topics(self) -> list[str]:
        return sorted({each.partition.topic for each in self.partitions})


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/queues", queues, console),
        show("/queues/{name:path}", queue, console),
        change("/queues/{name:path}/redrive", redrive, console),
    )


async def queues(console: Console, visit: Visit, request: Request) -> Response:
    wanted = request.query_params.get("find", "")
    groups = await GroupAdmin(visit.cluster).groups(types=[SHARE])
    found = [each for each in groups if wanted.lower() in each.group_id.lower()]
    return console.html(
        request,
        "queues.html",
        user=visit.user,
        rows=[await _row(visit.cluster, each) for each in found[:_QUEUES_MAX]],
        count=len(found),
        rows_max=_QUEUES_MAX,
        find=wanted,
    )


async def _row(cluster: Cluster, group: ListedGroup) -> Row:
    try:
        partitions = await Queue(cluster, group.group_id).look()
        return Row(group, partitions, await _waiting(cluster, group.group_id, with_letters=False), None)
    except KafkaError as error:
        return Row(group, [], None, error.message or error.code.name)


async def _waiting(cluster: Cluster, group_id: str, *, with_letters: bool) -> Waiting | None:
    topic = await find_topic(cluster, group_id)
    if topic is None:
        return None
    try:
        depths = await DeadLetters(cluster, topic).depths()
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Waiting(topic, None, [])
        raise
    letters: list[Letter] = []
    if with_letters:
        starts = {at: depth.start for at, depth in depths.items() if depth.size}
        first = await read_first(cluster, starts, _LETTERS_OF_PARTITION) if starts else {}
        read = [read_letter(record) for _, records in sorted(first.items()) for record in records]
        letters = [each for each in read if each is not None]
    return Waiting(topic, sum(each.size for each in depths.values()), letters[:_LETTERS_MAX])


async def queue(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    described = await GroupAdmin(visit.cluster).describe(name)
    if described.type != SHARE:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} is no share group")
    partitions = await Queue(visit.cluster, name).look()
    return console.html(
        request,
        "queue.html",
        user=visit.user,
        group=described,
        name=name,
        partitions=partitions[:_PARTITIONS_MAX],
        partition_count=len(partitions),
        depth=sum(each.depth or 0 for each in partitions),
        out=sum(each.out.held_count for each in partitions if each.out is not None),
        waiting=await _waiting(visit.cluster, name, with_letters=True),
    )


async def redrive(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    waiting = await _waiting(visit.cluster, name, with_letters=False)
    if waiting is None or not waiting.total:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no dead letters of {name}")
    count = number(request, "count")
    which = f"The first {count}" if count else f"All {waiting.total}"
    words = [
        f"{which} dead letters in {waiting.topic} are read.",
        "Their records are written again at the end of the partitions that they came from, where all readers see them.",
        "Then the letters are deleted. Letters of other groups, and those of which nothing is left, stay.",
    ]
    page = confirmed(console, visit, request, title=f"Send dead letters of {name} back", words=words)
    if page is not None:
        return page
    outcome = await DeadLetters(visit.cluster, waiting.topic).redrive(name, count_max=count)
    said = f"{outcome.redriven_count} records were sent back."
    if outcome.problems:
        said = f"{said} Left: {'; '.join(outcome.problems)}"
    return done(f"/queues/{quote(name, safe='')}", said)
