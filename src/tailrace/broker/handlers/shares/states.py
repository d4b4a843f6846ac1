"""What brokers ask of share coordinators: each share-partition goes to the one that keeps its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.broker.coordinators.calls import submit_parts
from tailrace.broker.coordinators.shares import share_key
from tailrace.model.ids import Uuid
from tailrace.wire import apis

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.schema import Message


def handle_share_state(services: Services, context: RequestContext, request: Any) -> Pending[Message]:
    parts = []
    for topic in request.topics:
        for each in topic.partitions:
            part = type(request)(
                group_id=request.group_id, topics=[type(topic)(topic_id=topic.topic_id, partitions=[each])]
            )
            parts.append((share_key(request.group_id, Uuid(topic.topic_id), each.partition), part))
    return submit_parts(services.coordination.shares, context, parts, _join(apis.response_type(request.api_key)))


def _join(response_type: Any) -> Callable[[list[Any]], Message]:
    def join(answers: list[Any]) -> Message:
        topics: dict[bytes, Any] = {}
        for answer in answers:
            for result in answer.results:
                if result.topic_id in topics:
                    topics[result.topic_id].partitions += result.partitions
                else:
                    topics[result.topic_id] = result
        joined: Message = response_type(results=list(topics.values()))
        return joined

    return join
