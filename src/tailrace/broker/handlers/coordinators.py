"""FindCoordinator: which broker coordinates a group or a transactional id.

Answered with COORDINATOR_NOT_AVAILABLE as long as this broker coordinates neither. It is advertised all the same:
without it librdkafka silently sends lz4 batches uncompressed.

Version notes: 1 adds transactional ids and error messages; from 4 on a request asks for many keys at once (KIP-699).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext

_FIRST_VERSION_WITH_MANY_KEYS = 4
# Groups, transactional ids and share groups.
_KEY_TYPES = (0, 1, 2)
_REASON = "This broker coordinates no groups and no transactions yet"


def handle_find_coordinator(
    _broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, _REASON
    if request.key_type not in _KEY_TYPES:
        code, reason = (
            ErrorCode.INVALID_REQUEST,
            f"Key type {request.key_type} is unknown: 0 is a group, 1 a transaction",
        )
    if context.api_version < _FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(error_code=code, error_message=reason, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason
            )
            for key in request.coordinator_keys
        ]
    )
