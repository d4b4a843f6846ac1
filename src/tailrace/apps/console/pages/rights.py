"""Who may do what, and how much: users, ACLs and quotas. And transactions that are open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.security.quotas import QuotaAdmin
from tailrace.client.security.users import describe_users
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.model.errors import KafkaError
from tailrace.model.security import ScramMechanism

_ROWS_MAX = 1000
# Each is a question of its own.
_TRANSACTIONS_MAX = 100


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/access", access, console), show("/transactions", transactions, console))


async def access(console: Console, visit: Visit, request: Request) -> Response:
    cluster = visit.cluster
    users, users_problem = await _told(lambda: describe_users(cluster))
    acls, acls_problem = await _told(lambda: AclAdmin(cluster).find(AclFilter()))
    quotas, quotas_problem = await _told(lambda: QuotaAdmin(cluster).quotas())
    return console.html(
        request,
        "access.html",
        user=visit.user,
        users=[
            (each.user, ", ".join(ScramMechanism(info.mechanism).mechanism_name for info in each.credential_infos))
            for each in users[:_ROWS_MAX]
        ],
        users_problem=users_problem,
        acls=acls[:_ROWS_MAX],
        acls_count=len(acls),
        acls_problem=acls_problem,
        quotas=quotas[:_ROWS_MAX],
        quotas_problem=quotas_problem,
    )


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


async def _told(question: Callable[[], Awaitable[Any]]) -> tuple[list[Any], str | None]:
    """What was found, or why nothing is shown."""
    try:
        return list(await question()), None
    except KafkaError as error:
        return [], error.message or error.code.name
