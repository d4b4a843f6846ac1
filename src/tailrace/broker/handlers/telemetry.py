"""GetTelemetrySubscriptions and PushTelemetry: what is wanted of a client's metrics, and the metrics (KIP-714).

Served, and advertised, only where something receives them. A client without a number of its own is given one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from tailrace.wire.compression import Compression

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

# The first one is what clients use.
_ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]
_NO_ID = bytes(16)
_RESERVED = (_NO_ID, bytes(15) + b"\x01")


def handle_get_telemetry_subscriptions(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    assert services.telemetry is not None, "the catalogue says so"
    instance_id = bytes(request.client_instance_id)
    if instance_id == _NO_ID:
        instance_id = services.ports.random.uuid()
    wanted = services.telemetry.subscribe(instance_id, context.client_id, context.peer).wanted
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(_ACCEPTED),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=services.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )


async def handle_push_telemetry(
    services: Services, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    assert services.telemetry is not None, "the catalogue says so"
    if bytes(request.client_instance_id) in _RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A client that pushes has an instance id")
    await services.telemetry.push(request, context.client_id, context.peer)
    return PushTelemetryResponse()
