"""The requests of the metadata quorum on a controller listener: given to the Raft driver as they are.

All of these are for other nodes of the cluster, or for admin clients that speak to controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


async def handle_by_raft(services: Services, context: RequestContext, request: Message) -> Message:
    return await services.quorum.driver.handle(request, context.listener.name, context.peer)
