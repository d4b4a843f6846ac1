"""Who waits for a coordinator: a request about one group or transactional id, and the place of its answer.

A `CoordinatorCall` is the Pending that a handler gives back, and the Caller that a machine sees. A request about
several of them becomes several calls, whose answers are joined into one.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.context import Pending
from tailrace.broker.failures import refuse
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.schema import Message, Struct

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.coordinators.shard import Machine
    from tailrace.coordinator.op import Call, Result, Told
    from tailrace.replica.lease import Lease


_TRANSLATIONS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class CoordinatorCall(Pending[Message]):
    __slots__ = ("_request", "api_version", "client_id", "may_describe", "open_calls", "peer")

    def __init__(self, context: RequestContext, request: Message) -> None:
        super().__init__()
        self._request = request
        self.api_version = context.api_version
        self.client_id = context.client_id or ""
        self.peer = context.peer
        self.may_describe: Callable[[str], bool] | None = None
        # Those of its shard, among which it stands until it is answered.
        self.open_calls: dict[Told, None] | None = None

    @property
    def request(self) -> Message:
        return self._request

    @property
    def client_host(self) -> str:
        """As Kafka stores and shows it."""
        return "/" + self.peer.rpartition(":")[0].strip("[]")

    def decide(self, machine: Machine, call: Call) -> Result:
        return machine.op(call, self, self.request)

    def failure(self, error: KafkaError) -> Message:
        """Errors of the log below are not the client's business: they become errors of the coordinator, as in Kafka."""
        code = _TRANSLATIONS.get(error.code)
        # A message about the log would puzzle who sees an error of the coordinator.
        return refuse(self.request, self.api_version, error if code is None else KafkaError(code, ""))

    def fail(self, error: KafkaError) -> None:
        self.complete(self.failure(error))

    def abandon(self) -> None:
        super().abandon()
        if self.open_calls is not None:
            self.open_calls.pop(self, None)

    def hurry(self) -> None:
        self.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "The broker stops"))


class InnerCall(CoordinatorCall):
    """A call of this broker itself."""

    __slots__ = ()

    def __init__(self, request: Message, api_version: int) -> None:
        Pending.__init__(self)
        self._request = request
        self.api_version = api_version
        self.client_id = self.peer = ""
        self.open_calls = None

    def wait(self) -> Future[Message]:
        """For its answer. To be called once it was submitted."""
        answered: Future[Message] = get_running_loop().create_future()
        self.deliver_to(lambda answer: None if answered.done() else answered.set_result(answer))
        return answered


class HoldingCall(CoordinatorCall):
    """The call of a member that joins or waits for its assignment: as in Kafka, what it sends after that waits too."""

    __slots__ = ()
    holds_next = True


class _Parts(Pending[Message]):
    """The answer to a request in several parts, once all of them are answered."""

    __slots__ = ("_calls", "_join", "_left_count")

    def __init__(self, calls: Sequence[CoordinatorCall], join: Callable[[list[Message]], Message]) -> None:
        super().__init__()
        self._calls = calls
        self._join = join
        self._left_count = len(calls)
        for call in calls:
            call.deliver_to(self._take)

    def _take(self, _answer: Message) -> None:
        self._left_count -= 1
        if not self._left_count:
            self.complete(self._join([each.answer for each in self._calls if each.answer is not None]))

    def abandon(self) -> None:
        super().abandon()
        for call in self._calls:
            call.abandon()


def give(told: Told, answer: Message, lease: Lease) -> None:
    """Past the lease nobody is refused for good: another broker may know better."""
    if lease.is_past and any(map(lease.is_for_good, _error_codes(answer))):
        told.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "The broker has lost touch with the controller"))
    else:
        told.complete(answer)


def _error_codes(answer: Struct) -> Iterator[int]:
    """All that stand in it, at whatever depth."""
    for field in answer.fields:
        value = getattr(answer, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, Struct):
            yield from _error_codes(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from _error_codes(each)


class Asked(Protocol):
    """The coordinators of groups, or of transactional ids."""

    def submit(self, key: str, call: CoordinatorCall) -> None: ...


def submit_parts(
    coordinators: Asked,
    context: RequestContext,
    parts: Sequence[tuple[str, Message]],
    join: Callable[[list[Message]], Message],
) -> Pending[Message]:
    """Each part is (group or transactional id, a request about this one alone). `join` is given the answers in the same
    order."""
    calls = [CoordinatorCall(context, request) for _, request in parts]
    for (key, _), call in zip(parts, calls, strict=True):
        coordinators.submit(key, call)
    pending = _Parts(calls, join)
    if not calls:
        pending.complete(join([]))
    return pending
