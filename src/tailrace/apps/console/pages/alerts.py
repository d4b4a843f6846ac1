"""Alerts: what holds now, which rules there are, and the nodes that they are judged by."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.alerts import Status, read_status
from tailrace.apps.console.doors.rights import may_on_cluster
from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.model.acls import Operation
from tailrace.model.errors import ErrorCode, KafkaError


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/alerts", alerts, console),)


async def alerts(console: Console, visit: Visit, request: Request) -> Response:
    status = await known_alerts(console, visit)
    is_watched = console.options.alerts_file is not None
    if is_watched and status is None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "alerts are for those who may DESCRIBE the cluster")
    return console.html(request, "alerts.html", user=visit.user, seen=status, is_watched=is_watched)


async def known_alerts(console: Console, visit: Visit) -> Status | None:
    """None if nobody watches for this console, or if they are not this visitor's to see."""
    path = console.options.alerts_file
    if path is None or (visit.user is not None and not await may_on_cluster(visit.cluster, Operation.DESCRIBE)):
        return None
    return read_status(path, console.watcher.now_s())
