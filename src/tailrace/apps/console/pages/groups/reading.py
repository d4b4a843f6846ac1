"""Groups: the list, one group with its members and why it rebalanced, other offsets for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.watcher import LAG
from tailrace.apps.console.web import Console, change, confirmed, done, field, number, show
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.groups.admin import GroupAdmin, PastRebalance
from tailrace.client.groups.progress import find_progress, total_lag
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.settings import LONG_MAX

_ROWS_MAX = 500
_PARTITIONS_MAX = 1000


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/groups", groups, console),
        show("/groups/{name:path}", group, console),
        change("/groups/{name:path}/reset", reset, console),
        change("/groups/{name:path}/delete", delete, console),
    )


async def groups(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    wanted = request.query_params.get("find", "").lower()
    found = [each for each in picture.groups.values() if wanted in each.group_id.lower()]
    if request.query_params.get("by") == "lag":
        found.sort(key=lambda each: -(picture.lag_of(each.group_id) or 0))
    rows = [
        (each, picture.lag_of(each.group_id), sorted({tp.topic for tp in picture.committed.get(each.group_id, {})}))
        for each in found[:_ROWS_MAX]
    ]
    return console.html(
        request,
        "groups.html",
        user=visit.user,
        picture=picture,
        rows=rows,
        count=len(found),
        rows_max=_ROWS_MAX,
        find=request.query_params.get("find", ""),
    )


async def group(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    admin = GroupAdmin(visit.cluster)
    described = await admin.describe(name)
    picture = await console.picture(visit)
    history, no_history = await _history(admin, name)
    progress = find_progress(described.members, picture.committed.get(name, {}), picture.ends)
    return console.html(
        request,
        "group.html",
        user=visit.user,
        group=described,
        name=name,
        progress=progress[:_PARTITIONS_MAX],
        progress_count=len(progress),
        lag=total_lag(progress) if any(each.lag is not None for each in progress) else None,
        history=list(reversed(history)),
        no_history=no_history,
        topics=sorted({each.partition.topic for each in progress}),
        lag_chart=console.chart(request, LAG, name),
    )


async def _history(admin: GroupAdmin, name: str) -> tuple[list[PastRebalance], str | None]:
    try:
        return await admin.history(name), None
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return [], "Apache Kafka keeps no history of rebalances."
        return [], error.message or error.code.name


async def reset(console: Console, visit: Visit, request: Request) -> Response:
    name, topic = request.path_params["name"], field(request, "topic")
    admin = GroupAdmin(visit.cluster)
    described = await admin.describe(name)
    if described.members:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {name} has {len(described.members)} members, which would commit over it: stop them first",
        )
    before = await admin.offsets_of(name, lambda offsets: offsets.fetch())
    after = await _targets(visit, request, topic, number(request, "partition"))
    lines = [
        f"{partition} goes from {before[partition].offset if partition in before else 'nothing'} to {offset}."
        for partition, offset in after.items()
    ]
    shown = [*lines[:50], *([f"And {len(lines) - 50} more partitions."] if len(lines) > 50 else [])]
    page = confirmed(console, visit, request, title=f"Other offsets for {name} in {topic}", words=shown)
    if page is not None:
        return page
    await admin.offsets_of(name, lambda offsets: offsets.commit(after))
    await console.watcher.look()
    return done(f"/groups/{quote(name, safe='')}", f"The offsets of {name} in {topic} were set.")


async def _targets(visit: Visit, request: Request, topic: str, wanted: int | None) -> Mapping[TopicPartition, int]:
    """Of all partitions, or of the one that is wanted."""
    found = (await visit.cluster.refresh([topic]))[topic]
    if wanted is not None and wanted not in found.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {wanted}")
    partitions = [TopicPartition(topic, PartitionIndex(each)) for each in found.partitions if wanted in (None, each)]
    consumer = Consumer(visit.cluster)
    starts = await consumer.offsets_at(partitions, EARLIEST)
    ends = await consumer.offsets_at(partitions, LATEST)
    where = field(request, "where")
    if where == "earliest":
        return starts
    if where == "latest":
        return ends
    wanted = number(request, "number", maximum=LONG_MAX)
    if wanted is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{where} needs a number beside it")
    if where == "time":
        return await consumer.offsets_at(partitions, wanted)
    return {each: min(max(wanted, starts[each]), ends[each]) for each in partitions}


async def delete(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    words = [f"Group {name} is forgotten with all its committed offsets: its next member begins anew."]
    page = confirmed(console, visit, request, title=f"Delete group {name}", words=words, word=name, is_grave=True)
    if page is not None:
        return page
    await GroupAdmin(visit.cluster).delete(name)
    await console.watcher.look()
    return done("/groups", f"Group {name} was deleted.")
