"""ShareAcknowledge: what became of records that a member holds, without a fetch. With epoch -1 it ends the session, and
what the member still holds is for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.context import Pending
from tailrace.broker.handlers.leader_hints import hint_leader, node_endpoints
from tailrace.broker.handlers.shares.acknowledging import (
    Acknowledging,
    acknowledgements_of,
    begin_acknowledging,
    session_key,
)
from tailrace.broker.shares.sessions import CLOSE_EPOCH, OPEN_EPOCH
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.shares import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


def handle_share_acknowledge(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | PendingAcknowledgement:
    services.shares.check_enabled()
    key, sessions = session_key(request), services.shares.sessions
    if request.share_session_epoch == OPEN_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A share session is opened by a fetch.")
    is_last = request.share_session_epoch == CLOSE_EPOCH
    session = sessions.find(key) if is_last else sessions.next(key, request.share_session_epoch)
    acknowledging = begin_acknowledging(
        services, context, key, acknowledgements_of(request), is_renewal=request.is_renew_ack
    )
    if is_last:
        sessions.close(key)
        services.shares.release(session)
    if acknowledging.is_done:
        return _respond(services, context, request, acknowledging)
    return PendingAcknowledgement(services, context, request, acknowledging)


class PendingAcknowledgement(Pending[ShareAcknowledgeResponse]):
    """Until what was said is stored. Later requests of the connection are taken meanwhile: many acknowledgements that a
    member sends without waiting are stored together."""

    __slots__ = ("_acknowledging", "_context", "_request", "_services")

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: ShareAcknowledgeRequest,
        acknowledging: Acknowledging,
    ) -> None:
        super().__init__()
        self._services = services
        self._context = context
        self._request = request
        self._acknowledging = acknowledging
        acknowledging.call_when_done(self._on_done)

    def _on_done(self) -> None:
        if not self.is_over:
            self.complete(_respond(self._services, self._context, self._request, self._acknowledging))


def _respond(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest, acknowledging: Acknowledging
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for place, error in acknowledging.results.items():
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
    config = services.shares.config(request.group_id or "")
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            ShareAcknowledgeResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node_endpoints(services, context.listener.name, leaders)
        ],
    )
