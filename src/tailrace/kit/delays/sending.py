"""`Delays`: records that are delivered later, and taken back before.

    async with Delays(bootstrap_servers="127.0.0.1:9092") as delays:
        ticket = await delays.send("reminders", "pay!", delay="30d")
        ...
        await delays.cancel(ticket)

A mover has to run (`tailrace delays`). Readers of committed records see each delivery once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from tailrace.kit.delays.headers import Delayed, Room, Ticket, parse_ticket, wrap
from tailrace.kit.delays.mover import create_topics
from tailrace.kit.delays.slots import DELAY_MS_MAX, slot_for
from tailrace.kit.messages import Headers, headers_of
from tailrace.kit.options import Options, Value
from tailrace.kit.producer import Producer
from tailrace.kit.retries.plan import parse_duration_ms
from tailrace.kit.serdes import AskingSerde, Bytes, ByType, Serde
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Clock
from tailrace.real.cluster import open_cluster
from tailrace.real.ports import real_ports

# Before this time is left a record can be cancelled for certain, whose clock ever is a little off.
_CANCEL_MARGIN_MS = 1000
_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class DelayError(ValueError):
    """A time that cannot be kept."""


class Cancelled(StrEnum):
    CANCELLED = "cancelled"
    TOO_LATE = "too late"


class Delays:
    """Use it as an async context manager. Options are those of `Producer`; `name` is the room of the mover."""

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        name: str = "delays",
        keys: Serde | None = None,
        values: Serde | None = None,
        clock: Clock | None = None,
        **named: Value,
    ) -> None:
        self._room = Room(name)
        self._keys = keys or ByType()
        self._values = values or ByType()
        own = {"linger.ms": 0, **(options or {}), **{key.replace("_", "."): value for key, value in named.items()}}
        # A broker would make a topic with as many partitions as it likes, and they stand for times.
        self._producer = Producer({**own, "allow.auto.create.topics": False}, keys=Bytes(), values=Bytes())
        ports = real_ports()
        self._clock = clock or ports.clock
        self._random = ports.random

    async def __aenter__(self) -> Delays:
        await self.start()
        return self

    async def start(self) -> None:
        """Makes the topics of its room, if there are none; the mover does so, too."""
        options = self._producer.options
        cluster = open_cluster(
            options.bootstrap, security=options.security, client_id=options.config.client_id, limits=options.limits()
        )
        try:
            await cluster.with_retries(cluster.any_connection, timeout_ms=options.config.max_block_ms)
            await create_topics(cluster, self._room)
        except KafkaError as error:
            if error.code not in _DENIED:  # Who may only write leaves that to the mover.
                raise
        finally:
            cluster.close()
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        delay: str | timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> str:
        """Until it is certain that the record will be delivered, after `delay` ("5m") or at a time. The ticket by which
        it can be cancelled. Raises DelayError for more than 90 days."""
        now = self._clock.wall_ms()
        ticket = Ticket(_due_ms(now, delay, deliver_at), self._random.uuid().hex())
        if isinstance(self._keys, AskingSerde):
            await self._keys.prepare_write(topic, "key")
        if isinstance(self._values, AskingSerde):
            await self._values.prepare_write(topic, "value")
        raw_key = self._keys.serialize(key, topic, "key")
        raw_value = self._values.serialize(value, topic, "value")
        slot = slot_for(ticket.due_ms, now)
        waiting = wrap(headers_of(headers), Delayed(ticket, topic, partition))
        await self._producer.produce(
            self._room.topic(slot.level), raw_value, key=raw_key, headers=waiting, partition=slot.partition
        )
        return str(ticket)

    async def cancel(self, ticket: str) -> Cancelled:
        """CANCELLED: it will never be delivered. TOO_LATE: less than a second is left, and it will be. Raises
        KafkaError if neither is certain, since no broker has answered in that time."""
        found = parse_ticket(ticket)
        if found is None:
            raise DelayError(f"{ticket!r} is no ticket: send gives one")
        if self._left_ms(found) < _CANCEL_MARGIN_MS:
            return Cancelled.TOO_LATE
        await self._producer.produce(self._room.cancels, b"", key=ticket.encode(), partition=0)
        if self._left_ms(found) <= 0:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{ticket} was due before a broker confirmed that it is cancelled"
            )
        return Cancelled.CANCELLED

    def _left_ms(self, ticket: Ticket) -> int:
        return ticket.due_ms - self._clock.wall_ms()


def _due_ms(now_ms: int, delay: str | timedelta | None, deliver_at: datetime | None) -> int:
    if (delay is None) == (deliver_at is None):
        raise DelayError("give either delay or deliver_at")
    if deliver_at is not None:
        if deliver_at.tzinfo is None:
            raise DelayError(f"deliver_at={deliver_at} has no time zone: say which, such as datetime.now(UTC)")
        due_ms = int(deliver_at.timestamp() * 1000)
    elif isinstance(delay, timedelta):
        due_ms = now_ms + int(delay.total_seconds() * 1000)
    else:
        due_ms = now_ms + parse_duration_ms(delay or "")
    if due_ms - now_ms > DELAY_MS_MAX:
        raise DelayError(f"{(due_ms - now_ms) // 86_400_000} days are too long: records wait for 90 days at most")
    return max(due_ms, now_ms)
