"""Transactions: those under way, those that coordinators know, and on request those that nobody will end."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.client.transactions.admin import UNDER_WAY, HangingTransaction, TransactionAdmin

# Each is a question of its own.
_TRANSACTIONS_MAX = 100
# As `tailrace transaction find-hanging` has it: the longest that brokers let a transaction last.
_HANGING_MS = 15 * 60_000


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/transactions", transactions, console),)


async def transactions(console: Console, visit: Visit, request: Request) -> Response:
    admin = TransactionAdmin(visit.cluster)
    found = sorted(await admin.transactions(), key=lambda each: each.state not in UNDER_WAY)
    hanging, hanging_count = await _hanging(console, visit, request)
    described = [await admin.describe(each.transactional_id) for each in found[:_TRANSACTIONS_MAX]]
    return console.html(
        request,
        "transactions.html",
        user=visit.user,
        rows=described,
        count=len(found),
        hanging=hanging,
        hanging_count=hanging_count,
        shown_max=_TRANSACTIONS_MAX,
        now_ms=int(visit.cluster.ports.clock.wall_ms()),
    )


async def _hanging(console: Console, visit: Visit, request: Request) -> tuple[Sequence[HangingTransaction] | None, int]:
    """None if nobody asks: all leaders are. Partitions without a leader cannot be looked at."""
    if "hanging" not in request.query_params:
        return None, 0
    picture = await console.picture(visit)
    led = [
        each
        for topic in picture.topics.values()
        for each in picture.partitions_of(topic.name)
        if topic.partitions[each.partition].leader_id >= 0
    ]
    found = await TransactionAdmin(visit.cluster).find_hanging(led, max_age_ms=_HANGING_MS)
    return found[:_TRANSACTIONS_MAX], len(found)
