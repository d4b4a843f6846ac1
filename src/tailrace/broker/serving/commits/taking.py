"""The short way of OffsetCommit: commits that repeat an earlier one of their connection, but for offsets and epochs.

A consumer commits the same partitions again and again, as the same member of the same group. A *form* remembers the
bytes of such a request and what they mean; of one that fits only the offsets and leader epochs are read. It becomes an
op of the coordinator as any other (`coordinator/offsets/again`), and its answer is one `pack`. What a coordinator asks
of a commit it asks of this one: who leads, who is a member, which topics there are.

    a commit costs the interpreter 33 us the general way and 20 us this way, beside 12 for a produce of the express lane

The steps of the pipeline (`dispatch`), and what becomes of them here:

    decode      once for a form. Again if the coordinator refuses, or does not know the topics any more: what it refuses
                is told by the request
    authorise   once for a form, when it is learned: as lanes are, all are forgotten whenever an ACL has changed
    account     not at all: where there are quotas, all commits go the general way
    encode      once for a form
    measure     as runs of the express lane

A form (`forms`) is learned from the second request in a row that has one size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.serving.commits.forms import FORM_MAX_BYTES, HEAD, PLACE, Form, encoded_answer, make_form
from tailrace.broker.serving.measuring import NO_ERRORS, errors_of
from tailrace.coordinator.machine import GroupMachine
from tailrace.model.ports import Buffer, Bytes
from tailrace.wire.apis.groups import OffsetCommitRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode_from
from tailrace.wire.frame import decode_request_header
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Machine
    from tailrace.broker.quotas.tolls import ThrottledClient
    from tailrace.broker.services import Services
    from tailrace.broker.serving.measuring import Measurement
    from tailrace.broker.serving.outbox import Outbox, Slots
    from tailrace.coordinator.op import Call, Result

# From 8 on the form is flexible, and what precedes the offset and the epoch in it is the partition's index.
_VERSION_MIN = 8
_VERSION_MAX = 10
# What a connection may make the broker keep: a form takes its request and, for each partition, 300 bytes. However it is
# made up, the records of such a request fit into one op (`coordinator/offsets/batch_capacity`).
_FORMS_MAX = 4
# Learning costs as much as three commits: a client whose commits seldom repeat must not pay for it each time.
_CREDIT_MAX = 16
# Requests through here before the connection looks whether its turn is over.
_RUN_MAX = 16


class Short(Protocol):
    """An answer of a short way that is waited for."""

    @property
    def is_over(self) -> bool: ...

    def deliver_to(self, deliver: Callable[[Any], None]) -> None: ...

    def abandon(self) -> None: ...

    def hurry(self) -> None: ...

    def encode(self, answer: Any) -> bytes: ...


Keep = Callable[[Sequence[Bytes], Short | None, "Measurement | None"], None]


class CommitAgain(CoordinatorCall):
    """A commit that fitted a form."""

    __slots__ = ("_correlation_id", "_form", "_frame", "_measurement", "_places")

    def __init__(
        self,
        form: Form,
        frame: bytes,
        correlation_id: int,
        places: Sequence[tuple[int, int]],
        *,
        peer: str,
        measurement: Measurement | None,
    ) -> None:
        self.answer = self._deliver = self.may_describe = self.open_calls = None
        self.is_over = False
        self.api_version = form.version
        self.client_id = form.client_id
        self.peer = peer
        self._form = form
        self._frame = frame
        self._correlation_id = correlation_id
        self._places = places
        self._measurement = measurement

    @property
    def request(self) -> Message:
        """Decoded for those who have to look at it: whoever refuses it."""
        _header, position = decode_request_header(self._frame)
        return decode_from(OffsetCommitRequest, self.api_version, self._frame, position)[0]

    def decide(self, machine: Machine, call: Call) -> Result:
        assert isinstance(machine, GroupMachine), "the coordinators of groups have no other"
        return machine.commit_again(call, self, self._form.known, self._places)

    def encode(self, answer: Message) -> bytes:
        form, meter, errors = self._form, self._form.meter, NO_ERRORS
        if answer is form.known.response:
            encoded = form.pack(form.answer_size, self._correlation_id, form.tail)
        else:
            encoded, errors = encoded_answer(form.version, self._correlation_id, answer), errors_of(answer)
        if meter is not None:
            meter.note_answer(len(encoded) - 4, errors)
        if self._measurement is not None:
            self._measurement.note_answered((encoded,), errors)
        return encoded


class Commits:
    """The forms of one connection."""

    __slots__ = ("_credit", "_forms", "_keep", "_last", "_number", "_origin", "_outbox", "_services", "_slots")

    def __init__(self, services: Services, outbox: Outbox, slots: Slots, keep: Keep, origin: ThrottledClient) -> None:
        self._services = services
        self._outbox = outbox
        self._slots = slots
        self._keep = keep
        self._origin = origin
        # By size and by API and version, in the order in which they were learned.
        self._forms: dict[tuple[int, int], Form] = {}
        self._number = services.lanes.number  # With which they were learned.
        self._last = (0, 0)  # Of the request before this one.
        self._credit = _CREDIT_MAX

    def take(self, buffer: Buffer, view: memoryview, position: int, end: int) -> int:
        """Serves commits from `position` on, as long as they fit a form; gives the position behind them."""
        services = self._services
        if services.meters.number or services.request_log.is_on:
            return position
        if self._number != services.lanes.number:
            self._number = services.lanes.number
            self._forms.clear()
        for _ in range(_RUN_MAX):
            if end - position < HEAD.size:
                break
            size, key_and_version, correlation_id = HEAD.unpack_from(buffer, position)
            frame_end = position + 4 + size
            if not HEAD.size - 4 < size <= end - position - 4:
                break
            form = self._forms.get((size, key_and_version))
            if form is None or not form.fits(buffer, position):
                form = self._learn(view[position:frame_end], size, key_and_version)
                if form is None:
                    break
            elif self._credit < _CREDIT_MAX:
                self._credit += 1
            self._serve(form, buffer, view[position + 4 : frame_end], position, correlation_id)
            position = frame_end
        return position

    def _serve(self, form: Form, buffer: Buffer, frame: memoryview, position: int, correlation_id: int) -> None:
        services, meter, measurement = self._services, form.meter, None
        if meter is not None:
            measurement = meter.sample(services.ports.clock)
            meter.note_run(1, len(frame))
        places: list[Any] = [PLACE.unpack_from(buffer, position + place) for place in form.places]
        call = CommitAgain(form, bytes(frame), correlation_id, places, peer=self._origin.peer, measurement=measurement)
        services.coordination.groups.submit(form.known.request.group_id, call)
        if measurement is not None:
            measurement.note_parked()
        if call.answer is None:
            self._keep(form.answer, call, measurement)
        elif self._slots.count:
            self._keep((call.encode(call.answer),), None, measurement)
        else:
            self._outbox.put_all([call.encode(call.answer)], measurement)

    def _learn(self, frame: memoryview, size: int, key_and_version: int) -> Form | None:
        """A form for requests like this one, if it has one and the one before had its size."""
        if self._last != (size, key_and_version):
            self._last = size, key_and_version
            return None
        version = key_and_version & 0xFFFF
        if self._credit <= 0 or size > FORM_MAX_BYTES or not _VERSION_MIN <= version <= _VERSION_MAX:
            return None
        self._credit -= 1
        form = make_form(self._services.image, frame, version)
        access = self._services.access
        if form is not None and access is not None:
            known = form.known
            topics = {each.topic for each in known.partitions}
            if not access.may_have_form(self._origin, known.request.group_id, topics):
                return None  # It is denied, and logged, the general way.
        if form is not None:
            meters = self._services.request_meters
            form.meter = None if meters is None else meters.of(ApiKey.OFFSET_COMMIT, version)
            self._forms[size, key_and_version] = form
            if len(self._forms) > _FORMS_MAX:
                del self._forms[next(iter(self._forms))]
        return form
