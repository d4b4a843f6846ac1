"""The requests of the metadata quorum on a controller listener: given to the Raft driver as they are.

All of these are for other nodes of the cluster, or for admin clients that speak to controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext


async def handle_quorum_request(broker: Broker, _context: RequestContext, request: Message) -> Message:
    return await broker.quorum.driver.handle(request)


handle_fetch = handle_quorum_request
handle_vote = handle_quorum_request
handle_begin_quorum_epoch = handle_quorum_request
handle_end_quorum_epoch = handle_quorum_request
handle_describe_quorum = handle_quorum_request
handle_fetch_snapshot = handle_quorum_request
handle_add_raft_voter = handle_quorum_request
handle_remove_raft_voter = handle_quorum_request
handle_update_raft_voter = handle_quorum_request
