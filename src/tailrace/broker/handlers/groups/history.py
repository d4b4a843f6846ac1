"""DescribeGroupHistory, an API of our own: the last rebalances of a group with their causes, as its coordinator has
seen them.

A group that has not rebalanced under this coordinator has an empty history; so has one that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.wire.apis.own import DescribeGroupHistoryRequest, DescribeGroupHistoryResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


def handle_describe_group_history(
    services: Services, _context: RequestContext, request: DescribeGroupHistoryRequest
) -> DescribeGroupHistoryResponse:
    # Refused where it is not coordinated: there would be no history, or an old one.
    services.coordination.groups.find(request.group_id)
    return DescribeGroupHistoryResponse(
        rebalances=[
            DescribeGroupHistoryResponse.Rebalance(
                at_ms=each.at_ms,
                cause=each.cause.value,
                detail=each.detail,
                epoch=each.epoch,
                member_id=each.member_id,
                client_id=each.client_id,
            )
            for each in services.coordination.groups.history.of(request.group_id)
        ]
    )
