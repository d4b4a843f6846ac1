"""InitProducerId: a producer id for an idempotent producer, unique in the cluster for ever.

Ids come from blocks of a thousand that the controller hands out through the metadata log, so that a request normally
costs nothing. A transactional id is answered with COORDINATOR_NOT_AVAILABLE: transactions have no coordinator here
yet.

Version notes: 3 adds the producer's present id and epoch, which matter to transactional producers only (KIP-360).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext


async def handle_init_producer_id(
    broker: Broker, _context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        # Either both are known from an earlier answer, or neither is.
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=await broker.producer_ids.take(), producer_epoch=0)
