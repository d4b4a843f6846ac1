"""Records of one request on their way, and what is told of each.

They are handed to the caller's producer one after the other, so that those of one partition keep their order. Each is
answered when it is written as `acks` says, or with what is known: that it was not written, or that nobody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from time import gmtime, strftime
from typing import Any, TypeVar

from tailrace.apps.gateway.callers import Caller
from tailrace.apps.gateway.errors import GatewayError, of_kafka, of_record
from tailrace.apps.gateway.produce.records import NewRecord
from tailrace.client.producer import Delivered
from tailrace.model.errors import ErrorCode, KafkaError

T = TypeVar("T")

# A record under way, or what is wrong with it.
Sent = asyncio.Future[Delivered] | KafkaError | GatewayError


class Sending:
    def __init__(self, caller: Caller, topic: str, *, timeout_ms: int, creates_topics: bool) -> None:
        self.caller = caller
        self.topic = topic
        self._creates_topics = creates_topics
        self._deadline = asyncio.get_running_loop().time() + timeout_ms / 1000

    async def begin(self) -> None:
        """Raises GatewayError if nothing can be sent to this topic."""
        cluster = self.caller.cluster
        if cluster.known_topic(self.topic) is not None:
            return
        try:
            await self._patiently(self._look_up)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise GatewayError(404, 40401, f"Topic not found. {error.message}") from None
            raise of_kafka(error) from None

    async def send(self, record: NewRecord) -> Sent:
        async def attempt() -> asyncio.Future[Delivered]:
            return await self.caller.producer.send(
                self.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp=record.timestamp,
            )

        try:
            return await attempt()
        except KafkaError as error:
            if error.code is not ErrorCode.NETWORK_EXCEPTION:
                return _of_partition(error, record)
        try:
            return await self._patiently(attempt)
        except KafkaError as error:
            return _of_partition(error, record)

    async def _look_up(self) -> None:
        cluster = self.caller.cluster
        if not self._creates_topics:
            await cluster.topic(self.topic)
            return

        async def ask() -> None:
            await cluster.refresh([self.topic], allow_auto_creation=True)

        # The first answer to the request that creates a topic may still say that it is not there.
        await cluster.with_retries(ask, timeout_ms=_CREATION_TIMEOUT_MS)

    async def _patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        """While no broker can be reached, up to the deadline of the request: later records do not wait anew."""
        attempt = 0
        while True:
            try:
                return await action()
            except KafkaError as error:
                pause = self.caller.cluster.backoff_ms(attempt) / 1000
                if (
                    error.code is not ErrorCode.NETWORK_EXCEPTION
                    or asyncio.get_running_loop().time() + pause > self._deadline
                ):
                    raise
            attempt += 1
            await asyncio.sleep(pause)


# As long as the producer waits for a topic that it has asked for.
_CREATION_TIMEOUT_MS = 1000


def _of_partition(error: KafkaError, record: NewRecord) -> KafkaError | GatewayError:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and record.partition is not None:
        return GatewayError(404, 40402, f"Partition not found. {error.message}")
    return error


async def outcome_of(sent: Sent) -> Delivered | dict[str, Any]:
    """Where the record is, or the document that tells why it is not, or not known to be."""
    if isinstance(sent, KafkaError | GatewayError):
        return of_record(sent)
    try:
        return await sent
    except KafkaError as error:
        return of_record(error)


def iso_time(timestamp: int) -> str:
    return f"{_iso_second(timestamp // 1000)}.{timestamp % 1000:03d}Z"


@lru_cache(16)
def _iso_second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds)) if 0 <= seconds < 1 << 37 else "1970-01-01T00:00:00"
