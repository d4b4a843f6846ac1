"""Transactions that are open."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.client.transactions.admin import TransactionAdmin

# Each is a question of its own.
_TRANSACTIONS_MAX = 100


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/transactions", transactions, console),)


async def transactions(console: Console, visit: Visit, request: Request) -> Response:
    admin = TransactionAdmin(visit.cluster)
    found = await admin.transactions()
    described = [await admin.describe(each.transactional_id) for each in found[:_TRANSACTIONS_MAX]]
    return console.html(
        request,
        "transactions.html",
        user=visit.user,
        rows=described,
        count=len(found),
        shown_max=_TRANSACTIONS_MAX,
        now_ms=int(visit.cluster.ports.clock.wall_ms()),
    )
