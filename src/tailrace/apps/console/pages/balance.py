"""The balancer: what should move and why, a run of it, and its end."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.rights import may_on_cluster
from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.formats import bytes_text, duration_text
from tailrace.apps.console.web import Console, change, confirmed, done, field, number, show
from tailrace.balance.plan.picture import WORDS, Plan, Wish, seconds_for
from tailrace.balance.run.runner import Pace
from tailrace.model.acls import Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import LONG_MAX

_MOVES_MAX = 200


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/balance", balance, console),
        change("/balance/run", run, console),
        change("/balance/stop", stop, console),
    )


async def balance(console: Console, visit: Visit, request: Request) -> Response:
    await _check(visit, Operation.DESCRIBE)
    asked = request.query_params
    plan = None
    if "plan" in asked:
        plan = await console.balancing.plan(visit.security, _wish(asked.get("drain", ""), "must" in asked))
    return console.html(
        request,
        "balance.html",
        user=visit.user,
        run=console.balancing.run,
        plan=plan,
        moves_max=_MOVES_MAX,
        seconds=0 if plan is None else seconds_for(plan.moves, Pace().rate),
        spreads=_spreads(plan),
        drain=asked.get("drain", ""),
        must_only="must" in asked,
        rate=Pace().rate,
        at_once=Pace().at_once,
    )


async def run(console: Console, visit: Visit, request: Request) -> Response:
    await _check(visit, Operation.ALTER)
    wish = _wish(field(request, "drain"), bool(field(request, "must")))
    rate = number(request, "rate", maximum=LONG_MAX) or Pace().rate
    at_once = number(request, "at_once") or Pace().at_once
    if rate < 1 or at_once < 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the rate and the number of moves are above 0")
    plan = await console.balancing.plan(visit.security, wish)
    if plan.problems:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"nothing moves: {'; '.join(plan.problems)}")
    if not plan.moves:
        return done("/balance", "Nothing has to move.")
    least = duration_text(seconds_for(plan.moves, rate) * 1000)
    copied = f"{bytes_text(plan.size_bytes)} are copied, by each broker {bytes_text(rate)} a second at most"
    words = [
        f"{len(plan.moves)} partitions get other replicas or another leader, {at_once} at a time.",
        f"{copied}: {least} or more.",
        "It goes on without this page, in your name, and holds back while replicas lag.",
    ]
    page = confirmed(console, visit, request, title="Balance the cluster", words=words)
    if page is not None:
        return page
    console.balancing.start(
        visit.security, visit.user, _now_ms(visit), wish=wish, pace=Pace(at_once=at_once, rate=rate)
    )
    return done("/balance", "It has begun.")


async def stop(console: Console, visit: Visit, request: Request) -> Response:
    await _check(visit, Operation.ALTER)
    cancel = bool(field(request, "cancel"))
    words = [
        "No more moves begin, of this console or of any other balancer.",
        "Those under way are taken back, where enough replicas are in sync without them."
        if cancel
        else "Those under way are waited for.",
        "Then the throttles are taken away.",
    ]
    page = confirmed(console, visit, request, title="Stop balancing", words=words)
    if page is not None:
        return page
    console.balancing.stop(visit.security, visit.user, _now_ms(visit), cancel=cancel)
    return done("/balance", "It is being stopped.")


async def _check(visit: Visit, operation: Operation) -> None:
    """The run that is shown or stopped may be somebody else's."""
    if visit.user is not None and not await may_on_cluster(visit.cluster, operation):
        reason = f"balancing is for those who may {operation.name} the cluster"
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)


def _now_ms(visit: Visit) -> int:
    return int(visit.cluster.ports.clock.wall_ms())


def _wish(drain: str, must_only: bool) -> Wish:
    words = drain.replace(",", " ").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{drain!r} is no list of broker ids, such as 4, 5")
    return Wish(frozenset(map(int, words)), must_only=must_only)


def _spreads(plan: Plan | None) -> list[tuple[str, float, float, int]]:
    """How far the worst broker is from its share, now and then."""
    if plan is None:
        return []
    after = {each.resource: each for each in plan.after}
    return [
        (WORDS[each.resource], each.worst, after[each.resource].worst, each.node_id)
        for each in plan.before
        if each.resource in after
    ]
