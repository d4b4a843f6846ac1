"""FindCoordinator: which broker coordinates a group or a transactional id.

It is the leader of the partition of an internal topic that the key hashes to. That topic is created when it is first
asked for; the answer waits a moment for that, and else says to ask again.

Version notes: 1 adds transactional ids and error messages; from 4 on a request asks for many keys at once (KIP-699).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker.handlers.leader_hints import sends_away
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from tailrace.wire.apis.groups import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.model.config import Endpoint

_FIRST_VERSION_WITH_MANY_KEYS = 4
_SHARE = 2
_FIRST_VERSION_WITH_SHARES = 6
_SHARE_KEY_PARTS = 3
# By the type of the key: groups, transactional ids, and share-partitions as group:topicId:partition.
_TOPICS = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC, 2: SHARE_GROUP_STATE_TOPIC}


def handle_find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    is_known = request.key_type in _TOPICS and (request.key_type != _SHARE or _names_share_partitions(context, request))
    if is_known and _TOPICS[request.key_type] not in services.image.topics:
        return _create_and_respond(services, context, request)
    return _respond(services, context, request, None)


async def _create_and_respond(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    topic = _TOPICS[request.key_type]
    error = (await services.coordination.creations.wait([topic])).get(topic)
    problem = None if error is None else KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return _respond(services, context, request, problem)


def _respond(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, problem: KafkaError | None
) -> FindCoordinatorResponse:
    has_many_keys = context.api_version >= _FIRST_VERSION_WITH_MANY_KEYS
    found: list[FindCoordinatorResponse.Coordinator] = []
    for key in request.coordinator_keys if has_many_keys else [request.key]:
        try:
            if request.key_type == _SHARE:
                _check_share_key(context, key)
            if problem is not None:
                raise problem
            node_id, endpoint = _find(services, context, request.key_type, key)
        except KafkaError as error:
            found.append(
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=-1, host="", port=-1, error_code=int(error.code), error_message=error.message
                )
            )
        else:
            found.append(
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=node_id, host=endpoint.host, port=endpoint.port, error_message=""
                )
            )
    if has_many_keys:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _names_share_partitions(context: RequestContext, request: FindCoordinatorRequest) -> bool:
    """For what else is asked no topic is created."""
    try:
        for key in request.coordinator_keys:
            _check_share_key(context, key)
    except KafkaError:
        return False
    return True


def _check_share_key(context: RequestContext, key: str) -> None:
    if context.api_version < _FIRST_VERSION_WITH_SHARES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "FindCoordinator knows share-partitions from version 6 on")
    parts = key.rsplit(":", _SHARE_KEY_PARTS - 1)
    if len(parts) != _SHARE_KEY_PARTS or not all(parts) or not parts[2].isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A share-partition is named by group:topicId:partition")


def _find(services: Services, context: RequestContext, key_type: int, key: str) -> tuple[int, Endpoint]:
    if key_type not in _TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Key type {key_type} is unknown: 0 is a group, 1 a transaction, 2 a share-partition",
        )
    image = services.image
    topic = image.topics.get(_TOPICS[key_type])
    if topic is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{_TOPICS[key_type]} is not there yet")
    index = coordinator_partition(key, len(topic.partitions))
    leader = topic.partitions[index].leader
    node = image.brokers.get(leader)
    is_known = leader != services.node_id or not sends_away(services, _TOPICS[key_type], index)
    context.is_last |= not is_known  # This broker is cut off: the next question should not come here again.
    endpoint = None if node is None or node.fenced or not is_known else node.endpoint(context.listener.name)
    if endpoint is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"The coordinator of {key!r} cannot be reached by listener {context.listener.name}",
        )
    return leader, endpoint
