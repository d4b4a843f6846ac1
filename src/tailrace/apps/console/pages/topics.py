"""Topics: the list, one topic, and what can be changed of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.formats import bytes_text, count_text
from tailrace.apps.console.picture import Picture
from tailrace.apps.console.settings import alter_setting, shown_settings
from tailrace.apps.console.watcher import RATE, SIZE
from tailrace.apps.console.web import Console, change, confirmed, done, field, number, show, whole_number
from tailrace.client.admin import BROKER_DEFAULT, RESOURCE_TOPIC, SOURCE_TOPIC, Admin
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.metadata import TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.settings import LONG_MAX

# One page of the list: a browser draws a few thousand rows in a blink, and a person reads fewer.
_ROWS_MAX = 500
# Of the field for the number of replicas.
_SHORT_MAX = (1 << 15) - 1
# Of partitions that a confirmation names.
_LINES_MAX = 50


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/topics", topics, console),
        change("/topics", create, console),
        show("/topics/{name}", topic, console),
        change("/topics/{name}/settings", alter, console),
        change("/topics/{name}/partitions", grow, console),
        change("/topics/{name}/empty", empty, console),
        change("/topics/{name}/delete", delete, console),
    )


async def topics(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    wanted = request.query_params.get("find", "").lower()
    with_internal = "internal" in request.query_params
    found = [
        each
        for each in picture.topics.values()
        if (with_internal or not each.is_internal) and (not wanted or wanted in each.name.lower())
    ]
    order = request.query_params.get("by", "name")
    keys = {
        "size": lambda each: -picture.bytes_of(each.name),
        "records": lambda each: -picture.records_of(each.name),
        "rate": lambda each: -(console.rate(RATE, each.name) or 0),
        "lag": lambda each: -max(picture.groups_of(each.name).values(), default=-1),
    }
    if order in keys:
        found.sort(key=keys[order])
    return console.html(
        request,
        "topics.html",
        user=visit.user,
        picture=picture,
        rows=[_row(console, picture, each) for each in found[:_ROWS_MAX]],
        count=len(found),
        rows_max=_ROWS_MAX,
        find=request.query_params.get("find", ""),
        by=order,
        internal=with_internal,
    )


def _row(console: Console, picture: Picture, found: TopicMetadata) -> dict[str, object]:
    states = found.partitions.values()
    return {
        "name": found.name,
        "is_internal": found.is_internal,
        "partitions": len(found.partitions),
        "replicas": max((len(each.replicas) for each in states), default=0),
        "offline": sum(each.leader_id < 0 for each in states),
        "thin": sum(len(each.isr) < len(each.replicas) for each in states),
        "records": picture.records_of(found.name),
        "size": picture.bytes_of(found.name),
        "rate": console.rate(RATE, found.name),
        "groups": picture.groups_of(found.name),
    }


async def topic(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    picture = await console.picture(visit)
    # It may have come since the picture was taken.
    found = picture.topics.get(name) or (await visit.cluster.refresh([name]))[name]
    settings = await Admin(visit.cluster).configs_of(RESOURCE_TOPIC, name, with_synonyms=True)
    return console.html(
        request,
        "topic.html",
        user=visit.user,
        picture=picture,
        topic=found,
        name=name,
        partitions=picture.partitions_of(name),
        row=_row(console, picture, found),
        settings=shown_settings(settings, own=SOURCE_TOPIC),
        rate_chart=console.chart(request, RATE, name),
        size_chart=console.chart(request, SIZE, name),
    )


async def create(console: Console, visit: Visit, request: Request) -> Response:
    name = field(request, "name")
    partitions, replicas = number(request, "partitions"), number(request, "replicas", maximum=_SHORT_MAX)
    configs = _settings(field(request, "settings"))
    admin = Admin(visit.cluster)
    ask = partial(
        admin.create_topic,
        name,
        partition_count=BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=BROKER_DEFAULT if replicas is None else replicas,
        configs=configs,
    )
    planned = await ask(validate_only=True)
    words = [
        f"Topic {name} is created, with {planned.partition_count} partitions on {planned.replication_factor} replicas.",
        *(f"{setting} is set to {value}." for setting, value in configs.items()),
    ]
    page = confirmed(console, visit, request, title=f"Create topic {name}", words=words, is_asked=True)
    if page is not None:
        return page
    await ask()
    await console.watcher.look()
    return done(f"/topics/{quote(name, safe='')}", f"Topic {name} was created.")


async def alter(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    return await alter_setting(console, visit, request, RESOURCE_TOPIC, name, back=f"/topics/{quote(name, safe='')}")


async def grow(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    count = number(request, "count") or 0
    admin = Admin(visit.cluster)
    await admin.create_partitions(name, count, validate_only=True)
    words = [
        f"Topic {name} has {count} partitions from then on, and never fewer again.",
        "Records with the same key may go to another partition than before: the order of a key holds only within each.",
    ]
    page = confirmed(console, visit, request, title=f"More partitions for {name}", words=words, is_asked=True)
    if page is not None:
        return page
    await admin.create_partitions(name, count)
    await console.watcher.look()
    return done(f"/topics/{quote(name, safe='')}", f"Topic {name} has {count} partitions now.")


async def empty(console: Console, visit: Visit, request: Request) -> Response:
    """Records before an offset are deleted, of one partition or of all."""
    name, wanted = request.path_params["name"], number(request, "partition")
    found = (await visit.cluster.refresh([name]))[name]
    if wanted is not None and wanted not in found.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {wanted}")
    partitions = [
        TopicPartition(name, PartitionIndex(each)) for each in sorted(found.partitions) if wanted in (None, each)
    ]
    consumer = Consumer(visit.cluster)
    starts, ends = await consumer.offsets_at(partitions, EARLIEST), await consumer.offsets_at(partitions, LATEST)
    offset = number(request, "offset", maximum=LONG_MAX)
    # The form keeps the ends as they were told: what has come since is not deleted unseen.
    form = request.state.form
    told = form.setdefault("ends", " ".join(str(ends[each]) for each in partitions)).split()
    limits = [whole_number(each, LONG_MAX) for each in told] if offset is None else [offset] * len(partitions)
    before = {
        each: min(limit, ends[each])
        for each, limit in zip(partitions, limits, strict=False)
        if limit is not None and min(limit, ends[each]) > starts[each]
    }
    if not before:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no records there")
    lines = [f"{each} loses its records from {starts[each]} up to {end}." for each, end in before.items()]
    more = [f"And {len(lines) - _LINES_MAX} more partitions."] if len(lines) > _LINES_MAX else []
    words = ["They cannot be brought back.", *lines[:_LINES_MAX], *more]
    page = confirmed(console, visit, request, title=f"Empty topic {name}", words=words, word=name, is_grave=True)
    if page is not None:
        return page
    await Admin(visit.cluster).delete_records(before)
    await console.watcher.look()
    return done(f"/topics/{quote(name, safe='')}", f"Records of {name} were deleted.")


async def delete(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    picture = await console.picture(visit)
    groups = picture.groups_of(name)
    records, size = count_text(picture.records_of(name)), bytes_text(picture.bytes_of(name))
    words = [
        f"Topic {name} is deleted with its {records} records ({size} on all replicas). They cannot be brought back.",
        f"Groups that have read it: {', '.join(groups)}." if groups else "No group has committed offsets of it.",
    ]
    title = f"Delete topic {name}"
    page = confirmed(console, visit, request, title=title, words=words, word=name, is_grave=True)
    if page is not None:
        return page
    await Admin(visit.cluster).delete_topic(name)
    await console.watcher.look()
    return done("/topics", f"Topic {name} was deleted.")


def _settings(text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{line!r} is not name=value, such as retention.ms=3600000")
        found[name.strip()] = value.strip()
    return found
