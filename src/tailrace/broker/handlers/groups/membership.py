"""Requests of the members of a group, of both protocols.

The coordinator's shard answers them, at once or later; a broker that does not coordinate the group says so.
JoinGroup and SyncGroup may wait for other members, and what comes after them on the connection waits too, as in Kafka.
An empty group id is refused here, though a simple consumer may commit offsets under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.coordinators.calls import CoordinatorCall, HoldingCall
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.groups import (
        ConsumerGroupHeartbeatRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
    )


def handle_heartbeat_or_leave(
    services: Services,
    context: RequestContext,
    request: HeartbeatRequest | LeaveGroupRequest,
) -> CoordinatorCall:
    call = CoordinatorCall(context, request)
    _submit_named(services, request.group_id, call)
    return call


def handle_join_or_sync(
    services: Services, context: RequestContext, request: JoinGroupRequest | SyncGroupRequest
) -> HoldingCall:
    call = HoldingCall(context, request)
    _submit_named(services, request.group_id, call)
    return call


def _submit_named(services: Services, group_id: str, call: CoordinatorCall) -> None:
    if group_id:
        services.coordination.groups.submit(group_id, call)
    else:
        call.fail(KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty"))


def handle_consumer_group_heartbeat(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> CoordinatorCall:
    call = CoordinatorCall(context, request)
    access = services.access
    if access is not None:
        call.may_describe = lambda name: access.may(context, Operation.DESCRIBE, Kind.TOPIC, name, is_logged=False)
    services.coordination.groups.submit(request.group_id, call)
    return call
