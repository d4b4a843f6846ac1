"""The cluster as a whole, and its brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.pages.alerts import known_alerts
from tailrace.apps.console.picture import Picture
from tailrace.apps.console.settings import alter_setting, shown_settings
from tailrace.apps.console.watcher import CLUSTER, LAG, RATE, SIZE
from tailrace.apps.console.web import Console, change, show
from tailrace.client.admin import RESOURCE_BROKER, SOURCE_BROKER, Admin
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

_SHOWN_MAX = 50
# Of topics that something is wrong with.
_TOPICS_MAX = 8
# With the two of the cluster they fill two rows.
_LAGS_DRAWN = 4


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/", overview, console),
        show("/brokers", brokers, console),
        show("/brokers/{node_id:int}", broker, console),
        change("/brokers/{node_id:int}/settings", alter, console),
    )


async def overview(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    own = [topic for topic in picture.topics.values() if not topic.is_internal]
    rates = [(console.rate(RATE, topic.name) or 0.0, topic.name) for topic in own]
    busiest = sorted(rates, key=lambda each: (-each[0], -picture.bytes_of(each[1]), each[1]))
    lags = [(lag, group_id) for group_id in picture.committed if (lag := picture.lag_of(group_id))]
    offline, thin = picture.offline(), picture.under_replicated()
    sees_all = visit.user is None
    status = await known_alerts(console, visit)
    return console.html(
        request,
        "overview.html",
        user=visit.user,
        picture=picture,
        topics=own,
        partitions=sum(len(topic.partitions) for topic in picture.topics.values()),
        records=sum(picture.records_of(topic.name) for topic in own),
        size=sum(map(picture.bytes_of, picture.topics)),
        offline=_by_topic(offline)[:_TOPICS_MAX],
        offline_count=len(offline),
        offline_topics=len(_by_topic(offline)),
        thin=_by_topic(thin)[:_TOPICS_MAX],
        thin_count=len(thin),
        thin_topics=len(_by_topic(thin)),
        busiest=busiest[:8],
        lagging=sorted(lags, reverse=True)[:8],
        rate=console.rate(RATE, CLUSTER) if sees_all else sum(rate for rate, _ in busiest),
        rate_chart=console.chart(request, RATE, CLUSTER) if sees_all else None,
        size_chart=console.chart(request, SIZE, CLUSTER) if sees_all else None,
        lag_charts=[
            (group_id, drawn)
            for _, group_id in sorted(lags, reverse=True)[:_LAGS_DRAWN]
            if (drawn := console.chart(request, LAG, group_id)).highest
        ],
        problems=picture.problems,
        alerts_told=0 if status is None else status.told,
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[PartitionIndex]]]:
    """In the order of the topics."""
    found: dict[str, list[PartitionIndex]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return sorted(found.items())


async def brokers(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    return console.html(
        request,
        "brokers.html",
        user=visit.user,
        picture=picture,
        rows=[_broker_row(picture, each.node_id) | {"broker": each} for each in picture.brokers],
        quorum=picture.quorum,
        moving=[(each, picture.moving[each], *picture.copied_of(each)) for each in sorted(picture.moving)[:_SHOWN_MAX]],
        moving_count=len(picture.moving),
    )


async def broker(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    node_id = int(request.path_params["node_id"])
    found = next((each for each in picture.brokers if each.node_id == node_id), None)
    if found is None:
        return console.failed(request, "There is no such broker", f"No broker has the id {node_id}.", 404)
    problem, settings = None, []
    try:
        settings = await Admin(visit.cluster).configs_of(RESOURCE_BROKER, str(node_id), with_synonyms=True)
    except KafkaError as error:
        problem = error.message or error.code.name
    return console.html(
        request,
        "broker.html",
        user=visit.user,
        picture=picture,
        broker=found,
        row=_broker_row(picture, node_id),
        folders=[folder for folder in picture.folders if folder.broker_id == node_id],
        settings=shown_settings(settings, own=SOURCE_BROKER),
        problem=problem,
    )


async def alter(console: Console, visit: Visit, request: Request) -> Response:
    name = str(int(request.path_params["node_id"]))
    return await alter_setting(console, visit, request, RESOURCE_BROKER, name, back=f"/brokers/{name}")


def _broker_row(picture: Picture, node_id: int) -> dict[str, Any]:
    found = [each for topic in picture.topics.values() for each in topic.partitions.values()]
    voters = () if picture.quorum is None else [each.node_id for each in picture.quorum.voters]
    return {
        "roles": "broker, controller" if node_id in voters else "broker",
        "leads": sum(each.leader_id == node_id for each in found),
        "replicas": sum(node_id in each.replicas for each in found),
        "in_sync": sum(node_id in each.isr for each in found),
        "size": sum(sizes.get(node_id, 0) for sizes in picture.sizes.values()),
        "folders": [folder for folder in picture.folders if folder.broker_id == node_id],
    }
