"""What a handler knows of the request it serves, besides the request itself, and what it may give back.

A handler is `handle_x(services, context, request)` and gives one of
    a response message       encoded and sent in its place;
    None                     nothing is sent (Produce with acks=0);
    a Pending                its place is kept; whoever completes it calls `complete` (Produce and Fetch);
    a coroutine              run as a task, which gives one of the above; the connection takes no further request until
                             it is done, and counts the request among those in memory.
It may also raise
    KafkaError               answered with its code where the response has a place for one;
    AnsweredError            answered with what it holds;
    UnanswerableError          nothing can be answered: the connection closes after the earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.quotas.tolls import Toll
    from tailrace.broker.serving.measuring import Measurement

M = TypeVar("M", bound=Message)


class BoundListener(NamedTuple):
    """A listener that is open, with the port that it really has."""

    name: str
    host: str
    port: int
    is_controller: bool = False


class UnanswerableError(Exception):
    """The connection closes after the answers to earlier requests. Whoever raises it has said why in the log, or means
    a client that asked for no answer (Produce with acks=0)."""


class AnsweredError(Exception):
    """A step before the handler knows the whole answer: the handler is not asked."""

    def __init__(self, answer: Message) -> None:
        super().__init__()
        self.answer = answer


class RequestContext:
    """The facts of one request: its header, and where it came from."""

    __slots__ = (
        "api_key",
        "api_version",
        "audited",
        "client_id",
        "correlation_id",
        "is_last",
        "is_misdirected",
        "joins",
        "listener",
        "measurement",
        "peer",
        "principal",
        "received_bytes",
        "toll",
    )

    def __init__(
        self,
        *,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        peer: str,
        listener: BoundListener,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer  # `host:port` of the client.
        self.listener = listener  # The listener it came in by: clients are told the endpoints of that one.
        self.principal = principal  # Who the client has proved to be.
        self.audited: str  # What the audit log will say of the request; set by the steps of those APIs alone.
        # What puts together the answer and what a step before the handler has refused; called with the answer.
        self.joins: tuple[Callable[[Message], Message], ...] = ()
        self.received_bytes = 0  # Without the four bytes that tell its size.
        self.measurement: Measurement | None = None  # Where its time is taken.
        self.toll: Toll | None = None  # While some quota is set: what this request has used.
        self.is_last = False  # The connection closes after the answer, so that the client looks for another broker.
        self.is_misdirected = False  # It asked a node that is not the active controller, or ceased to be it meanwhile.


class Pending(Generic[M]):
    """An answer that is not known yet. Exactly one of `complete` (by the handler's side) and `abandon` (by the
    connection's, when the client is gone) ends it; what comes after is ignored."""

    __slots__ = ("_deliver", "answer", "is_over")

    # A parked Fetch holds the later requests of its connection back; a Produce that has appended does not.
    holds_next = False

    def __init__(self) -> None:
        self.answer: M | None = None
        self.is_over = False
        self._deliver: Callable[[M], None] | None = None

    def deliver_to(self, deliver: Callable[[M], None]) -> None:
        """Called once by the connection; never before the handler has returned."""
        if self.answer is not None:
            deliver(self.answer)
        else:
            self._deliver = deliver

    def complete(self, answer: M) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.answer = answer
        if self._deliver is not None:
            self._deliver(answer)

    def hurry(self) -> None:
        """The broker is about to stop: a wait that may end early does."""

    def abandon(self) -> None:
        """The client is gone. An append is never undone by it."""
        self.is_over = True
