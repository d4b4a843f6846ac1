"""What an op of a coordinator sees, and what it gives back.

An op reads the state of its partition and decides: records for the log, and answers that wait for them. Replaying the
records is what changes the durable state; what is not on the log (who waits for an answer, when a member was last
heard) an op may change at once, for it is lost with the leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

from tailrace.controller.image import MetadataImage
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import KafkaError
from tailrace.model.ports import Random
from tailrace.wire.schema import Message


class Told(Protocol):
    """Who is told once everything decided so far is committed, or that it was not: a client, or a part of the broker
    that acts on a decision."""

    def complete(self, answer: Message) -> None: ...

    def fail(self, error: KafkaError) -> None: ...


class Caller(Told, Protocol):
    """A client that waits for an answer. A machine may keep it and answer it in the result of a later op."""

    @property
    def request(self) -> Any: ...

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def peer(self) -> str:
        """The client's end of the connection: another connection has another one."""

    @property
    def may_describe(self) -> Callable[[str], bool] | None:
        """Whether the client may know of a topic; None where everyone may."""

    @property
    def is_over(self) -> bool:
        """The client is gone: an answer would reach nobody."""


class Call(NamedTuple):
    """The world as an op sees it."""

    now_ms: int  # By the wall clock: what is stored.
    monotonic_ms: float  # What deadlines are counted by: patient, see `model.attention`.
    image: MetadataImage
    config: BrokerConfig  # With the dynamic settings applied.
    random: Random


class StoredRecord(NamedTuple):
    """A record of the coordinator's topic; without a value it is a tombstone."""

    key: Message
    value: Message | None
    # The version of the value's form; None for the newest.
    version: int | None = None


class StoredBytes(NamedTuple):
    """A record in the form in which it is stored, where an op has made that itself."""

    key: bytes
    value: bytes


class Producer(NamedTuple):
    """Whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class Result(NamedTuple):
    # Replayed at once, so that the next op builds on them, and written together before the turn ends; may be empty.
    records: Sequence[StoredRecord | StoredBytes] = ()
    # Given once everything written so far is committed, these records included: nobody is told of what another leader
    # might not know.
    answers: Sequence[tuple[Told, Message]] = ()
    # If the records belong to a transaction: they count once its marker says so.
    producer: Producer | None = None
    # Called if the records are too large to be written. Without it the machine is loaded anew, all groups of its
    # partition: the op may have changed what is not on the log in the belief that they would be.
    on_refused: Callable[[Call], Result] | None = None


def unchanged(_call: Call) -> Result:
    """The `on_refused` of an op that is as good as not called if its records are refused."""
    return Result()


Steps = Generator[None, None, Result]
"""A computation too long for one turn of the loop: it yields at least every half millisecond, and returns the result of
an op. The state may have changed between two steps: it works on what it copied at its beginning, and looks at the end
whether that still matters."""
