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
from tailrace.apps.console.watcher import RATE, SIZE
from tailrace.apps.console.web import Console, change, confirmed, done, field, number, show
from tailrace.client.admin import BROKER_DEFAULT, CONFIG_SOURCES, RESOURCE_TOPIC, SOURCE_TOPIC, Admin
from tailrace.client.metadata import TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError

# One page of the list: a browser draws a few thousand rows in a blink, and a person reads fewer.
_ROWS_MAX = 500
# Of the field for the number of replicas.
_SHORT_MAX = (1 << 15) - 1


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/topics", topics, console),
        change("/topics", create, console),
        show("/topics/{name}", topic, console),
        change("/topics/{name}/settings", alter, console),
        change("/topics/{name}/partitions", grow, console),
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
        settings=settings,
        # What it would be if this topic said nothing: the next place that sets it.
        defaults={
            each.name: next((other.value for other in each.synonyms if other.source != SOURCE_TOPIC), None)
            for each in settings
        },
        sources=CONFIG_SOURCES,
        source_topic=SOURCE_TOPIC,
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
    setting, value = field(request, "setting"), field(request, "value")
    if not setting:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no setting is named: choose one, such as retention.ms")
    is_removed = "remove" in request.state.form
    admin = Admin(visit.cluster)
    changes = {} if is_removed else {setting: value}
    removals = [setting] if is_removed else []
    await admin.alter_configs(RESOURCE_TOPIC, name, changes=changes, removals=removals, validate_only=True)
    before = {entry.name: entry.value for entry in await admin.configs_of(RESOURCE_TOPIC, name)}.get(setting)
    after = "goes back to its default" if is_removed else f"becomes {value}"
    page = confirmed(
        console,
        visit,
        request,
        title=f"Change {setting} of {name}",
        words=[f"{setting} is {before} now and {after}."],
        is_asked=True,
    )
    if page is not None:
        return page
    await admin.alter_configs(RESOURCE_TOPIC, name, changes=changes, removals=removals)
    return done(f"/topics/{quote(name, safe='')}", f"{setting} of {name} was changed.")


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
