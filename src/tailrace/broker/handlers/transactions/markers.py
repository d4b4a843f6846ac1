"""WriteTxnMarkers: a coordinator, or somebody who has found a transaction hanging, ends one in partitions that are led
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.wire.apis.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


async def handle_write_txn_markers(
    services: Services, _context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return await services.coordination.write_markers(request)
