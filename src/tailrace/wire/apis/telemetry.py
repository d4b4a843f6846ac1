"""What clients tell of their own metrics (KIP-714). Declarations only, in the language of `wire.schema`."""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message, array, boolean, bytes_, int8, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    client_instance_id: bytes = uuid("0+")


class GetTelemetrySubscriptionsResponse(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array("int8", "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array("string", "0+")


class PushTelemetryRequest(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = bytes_("0+")


class PushTelemetryResponse(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
