"""Requests that go to a coordinator in parts, whose answers make one: about several groups, or too large for one op."""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.broker.coordinators.calls import CoordinatorCall, submit_parts

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.schema import Message

# Asked in one turn of the loop; each takes about 10 microseconds.
_GROUPS_PER_TURN = 50

Join = Callable[[list[Any]], "Message"]


def ask_each(
    services: Services, context: RequestContext, parts: Sequence[tuple[str, Message]], join: Join
) -> Pending[Message] | Coroutine[None, None, Message]:
    """Each part is (group id, a request about this group alone); `join` is given their answers in the same order."""
    if len(parts) == 1:
        group_id, request = parts[0]
        call = CoordinatorCall(context, request)
        services.coordination.groups.submit(group_id, call)
        return call
    if len(parts) <= _GROUPS_PER_TURN:
        return submit_parts(services.coordination.groups, context, parts, join)
    return ask_in_turns(services, context, parts, join, parts_per_turn=_GROUPS_PER_TURN)


async def ask_in_turns(
    services: Services,
    context: RequestContext,
    parts: Iterable[tuple[str, Message]],
    join: Join,
    *,
    parts_per_turn: int,
) -> Message:
    calls = []
    for number, (group_id, request) in enumerate(parts, 1):
        call = CoordinatorCall(context, request)
        services.coordination.groups.submit(group_id, call)
        calls.append(call)
        if number % parts_per_turn == 0:
            await sleep(0)
    return join([await answer_of(call) for call in calls])


async def answer_of(call: CoordinatorCall) -> Message:
    future: Future[Message] = get_running_loop().create_future()
    call.deliver_to(lambda answer: None if future.done() else future.set_result(answer))
    return await future
