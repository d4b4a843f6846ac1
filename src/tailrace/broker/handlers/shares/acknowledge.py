"""ShareAcknowledge: what became of records that a member holds, without a fetch. With epoch -1 it ends the session, and
what the member still holds is for others."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker.handlers.leader_hints import hint_leader, node_endpoints
from tailrace.broker.handlers.shares.acknowledging import (
    Results,
    acknowledgements_of,
    begin_acknowledging,
    session_key,
)
from tailrace.broker.shares.sessions import CLOSE_EPOCH, OPEN_EPOCH
from tailrace.controller.effective import group_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.shares import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


def handle_share_acknowledge(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest
) -> Coroutine[Any, Any, ShareAcknowledgeResponse]:
    services.shares.check_enabled()
    key, sessions = session_key(request), services.shares.sessions
    if request.share_session_epoch == OPEN_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A share session is opened by a fetch.")
    is_last = request.share_session_epoch == CLOSE_EPOCH
    session = sessions.find(key) if is_last else sessions.next(key, request.share_session_epoch)
    results = begin_acknowledging(services, context, key, acknowledgements_of(request), is_renewal=request.is_renew_ack)
    if is_last:
        sessions.close(key)
        services.shares.release(session)
    return _respond(services, context, request, results)


async def _respond(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest, results: Results
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for place, future in results.items():
        error = await future
        answer = ShareAcknowledgeResponse.PartitionData(partition_index=place.partition)
        if error is not None:
            answer.error_code, answer.error_message = int(error.code), error.message or None
            leader = hint_leader(services, error, "", place.topic_id, place.partition)
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
                leaders.add(leader[0])
        if place.topic_id not in topics:
            topics[place.topic_id] = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=place.topic_id)
        topics[place.topic_id].partitions.append(answer)
    config = group_config(services.config, services.image, request.group_id or "")
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            ShareAcknowledgeResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node_endpoints(services, context.listener.name, leaders)
        ],
    )
