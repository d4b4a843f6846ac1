"""Tiered storage: what lies where, what is not copied yet, and whether the store answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.pages.alerts import known_alerts
from tailrace.apps.console.tiers import BROKER_SETTINGS, look_at_tiers
from tailrace.apps.console.web import Console, show

_SHOWN_MAX = 200
_ENABLED, _URL, _RECOVERY = BROKER_SETTINGS


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/tier", tier, console),)


async def tier(console: Console, visit: Visit, request: Request) -> Response:
    picture = await console.picture(visit)
    tiers = await look_at_tiers(visit.cluster, picture)
    partitions = [each for found in tiers.partitions.values() for each in found]
    status = await known_alerts(console, visit)
    nodes = () if status is None else status.nodes
    stores = {each["node"]: each["store"] for each in nodes if each.get("store")}
    return console.html(
        request,
        "tier.html",
        user=visit.user,
        topics=[
            {
                "name": name,
                "records": sum(each.end - each.start for each in found),
                "only_there": sum(each.only_there for each in found),
                "not_there": sum(each.not_there for each in found),
                "local_bytes": sum(each.local_bytes for each in found),
            }
            for name, found in tiers.partitions.items()
        ],
        partitions=sorted(partitions, key=lambda each: (-each.not_there, each.partition))[:_SHOWN_MAX],
        count=len(partitions),
        shown_max=_SHOWN_MAX,
        places=[
            _place(node_id, found) | {"store": stores.get(str(node_id), "")}
            for node_id, found in sorted(tiers.brokers.items())
        ],
        is_watched=status is not None,
        problems=(*picture.problems, *tiers.problems),
    )


def _place(node_id: int, settings: Mapping[str, str]) -> dict[str, object]:
    return {
        "node_id": node_id,
        "is_enabled": settings.get(_ENABLED) == "true",
        "url": settings.get(_URL) or "",
        "recovery": settings.get(_RECOVERY) or "",
    }
