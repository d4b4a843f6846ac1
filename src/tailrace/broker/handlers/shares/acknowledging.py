"""What ShareFetch and ShareAcknowledge have in common: who asks, and acknowledgements that wait to be stored."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.broker.shares.sessions import Place, SessionKey
from tailrace.coordinator.share_partition.delivery import Acknowledge, Acknowledged
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_FIRST_VERSION_WITH_RENEWAL = 2
# Java clients make their ids of 22 characters; others may be as long as they like, within reason.
_MEMBER_ID_MAX = 200


class Acknowledging:
    """What becomes of what one request acknowledges, of each share-partition by itself."""

    __slots__ = ("_left_count", "_on_done", "results")

    def __init__(self) -> None:
        # Complete once `is_done`.
        self.results: dict[Place, KafkaError | None] = {}
        self._left_count = 0
        self._on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return not self._left_count

    def expect(self, place: Place) -> Callable[[KafkaError | None], None]:
        """To be called once it is known."""
        self._left_count += 1
        return partial(self._note, place)

    def call_when_done(self, on_done: Callable[[], None]) -> None:
        """Never at once."""
        self._on_done = on_done

    async def wait(self) -> None:
        if not self.is_done:
            done: Future[None] = get_running_loop().create_future()
            self.call_when_done(lambda: None if done.done() else done.set_result(None))
            await done

    def _note(self, place: Place, error: KafkaError | None) -> None:
        if place in self.results:
            return
        self.results[place] = error
        self._left_count -= 1
        if self._on_done is not None and self.is_done:
            self._on_done()


def may_read(services: Services, context: RequestContext, topic_id: Uuid) -> bool:
    """What the client may see of a topic that does not exist its handler says."""
    access, name = services.access, services.image.topic_names.get(topic_id)
    return access is None or name is None or access.may(
        context, Operation.READ, Kind.TOPIC, name, api_key=context.api_key
    )  # fmt: skip


def session_key(request: Any) -> SessionKey:
    """Raises KafkaError."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId is empty or too long.")
    return SessionKey(request.group_id, request.member_id)


def acknowledgements_of(request: Any) -> dict[Place, Sequence[Any]]:
    """The batches that a request acknowledges, by share-partition."""
    return {
        Place(Uuid(topic.topic_id), each.partition_index): each.acknowledgement_batches
        for topic in request.topics
        for each in topic.partitions
        if each.acknowledgement_batches
    }


def begin_acknowledging(
    services: Services,
    context: RequestContext,
    key: SessionKey,
    asked: dict[Place, Sequence[Any]],
    *,
    is_renewal: bool,
) -> Acknowledging:
    acknowledging = Acknowledging()
    for place, batches in asked.items():
        tell = acknowledging.expect(place)
        try:
            if not may_read(services, context, place.topic_id):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            read = _read(batches, api_version=context.api_version, is_renewal=is_renewal)
            share_partition = services.shares.find(key.group_id, place)
            share_partition.acknowledge(key.member_id, read, tell)
        except KafkaError as error:
            tell(services.replicas.lease.soften(error))
    return acknowledging


def _read(batches: Sequence[Any], *, api_version: int, is_renewal: bool) -> list[Acknowledged]:
    """Raises INVALID_REQUEST for ranges that are inverted or out of order, and for types that do not fit."""
    highest = Acknowledge.RENEW if api_version >= _FIRST_VERSION_WITH_RENEWAL else Acknowledge.REJECT
    earlier = -1
    read: list[Acknowledged] = []
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types)
        if first > last:
            raise _invalid(f"First offset {first} is greater than last offset {last}.")
        # Two that meet in one offset the share-partition refuses, with another code, as in Kafka.
        if first < earlier:
            raise _invalid(f"Offset {first} is acknowledged twice, or out of order.")
        if not types:
            raise _invalid("Acknowledge types are empty.")
        if len(types) > 1 and len(types) != last - first + 1:
            raise _invalid(f"{len(types)} acknowledge types are given for {last - first + 1} offsets.")
        unknown = [each for each in types if not Acknowledge.GAP <= each <= highest]
        if unknown:
            raise _invalid(f"Acknowledge type {unknown[0]} is unknown.")
        if Acknowledge.RENEW in types and not is_renewal:
            raise _invalid("Records are renewed by a request that says that it renews.")
        earlier = last
        read.append(Acknowledged(first, last, types))
    return read


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
