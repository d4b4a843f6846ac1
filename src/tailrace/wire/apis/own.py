"""Requests that Kafka does not have. Their keys lie far above Kafka's, and brokers do not advertise them: a client that
is not ours never meets them, and a broker that is not ours closes the connection, as Kafka does with unknown keys.

Declarations only, in the language of `wire.schema`.
"""

from __future__ import annotations

from tailrace.wire.schema import Message, Struct, array, int16, int32, int64, string


class DescribeGroupHistoryRequest(Message, api_key=10_000, versions="0", flexible="0+"):
    """Why did a group rebalance? Answered by its coordinator."""

    group_id: str = string("0+")


class DescribeGroupHistoryResponse(Message, api_key=10_000, versions="0", flexible="0+"):
    """Oldest first. The epoch is the group's, or the generation of a classic one, in which the rebalance began."""

    class Rebalance(Struct):
        at_ms: int = int64("0+")
        cause: str = string("0+")
        detail: str = string("0+")
        epoch: int = int32("0+")
        member_id: str = string("0+")
        client_id: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    rebalances: list[Rebalance] = array(Rebalance, "0+")
