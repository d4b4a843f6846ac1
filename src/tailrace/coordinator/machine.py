"""The coordinator of the groups of one partition of __consumer_offsets: a pure machine.

    op(request)        decides: records for the log, and answers that wait for them
    replay(record)     the only way to change what is durable; called for each record of an op, and for those of earlier
                       leaders when this broker becomes the leader
    on_loaded()        all of the log was replayed: members have a session time to be heard
    on_deadline()      decides by itself: sessions and rebalances that have run out of time, offsets that expire
    on_image()         topics were deleted or have grown
    take_work()        computations too long for one turn, which the runtime takes step by step
    forget()           the partition is lost

An op takes a request about one group; who was asked about several splits the request. The runtime
(broker.coordinators) replays the records of an op at once, so that the next op builds on them, and writes those of one
turn as one batch; answers wait until that is committed. If the write fails, or the partition is lost, it drops the
machine: what it knows then is not in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.catalogue import AnsweredBy, answered_by, load
from tailrace.controller.image import MetadataImage
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import History
from tailrace.coordinator.offsets.store import NO_PRODUCER, OffsetStore
from tailrace.coordinator.op import Call, Caller, Producer, Result, Steps, Told
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.stored_records import GROUP_RECORDS, OffsetCommitKey
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.coordinator.offsets.again import KnownCommit

# By API key. Modules are imported when the first group comes: a broker that starts needs none of them.
_OPS: dict[int, str] = {api.key: api.op for api in answered_by(AnsweredBy.GROUPS)}
# By the type of the stored record: offsets, classic groups, consumer groups, share groups, streams groups.
_REPLAYS: dict[int, str] = {
    0: "offsets.replay.replay_offset",
    1: "offsets.replay.replay_offset",
    2: "classic.replay.replay_group",
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), "consumers.replay.replay_record"),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), "shares.replay.replay_record"),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), "streams.replay.replay_record"),
}
# As the keys of stored offsets begin.
_OFFSET_KEYS = (b"\x00\x00", b"\x00\x01")
# By the first word of what is due: see groups.Due.
_DUE: dict[str, str] = {
    "classic": "classic.timers.on_due",
    "consumer": "consumers.timers.on_due",
    "share": "shares.timers.on_due",
    "streams": "streams.timers.on_due",
    "offsets": "offsets.expiry.on_due",
}
# All that these bring along, each after what it needs itself: none takes longer than a few milliseconds then.
_MODULES = (
    *("offsets.commit", "offsets.again", "offsets.fetch", "offsets.deletion"),
    *("classic.group", "classic.rebalance", "classic.join", "classic.leave", "classic.timers"),
    *("assignors", "consumers.member", "consumers.group", "consumers.topics", "consumers.targets"),
    *("consumers.subscriptions", "consumers.change", "consumers.heartbeat"),
    *("shares.records", "shares.group", "shares.change", "shares.heartbeat"),
    *("assignors.sticky", "streams.records", "streams.topology", "streams.group", "streams.change"),
    "streams.heartbeat",
)
_ON_LOADED = (
    "classic.timers.on_loaded",
    "consumers.timers.on_loaded",
    "shares.timers.on_loaded",
    "streams.timers.on_loaded",
    "offsets.expiry.on_loaded",
)
_ON_IMAGE = ("offsets.deletion.on_image", "consumers.subscriptions.on_image", "shares.timers.on_image")


class GroupMachine:
    def __init__(self, history: History, owe_states: Callable[[str], Told] | None = None) -> None:
        self.state = GroupState(OffsetStore(), history, owe_states)

    def op(self, call: Call, caller: Caller, request: Message) -> Result:
        """Raises KafkaError if the request fails as a whole."""
        if request.api_key not in _OPS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"No group serves {type(request).__name__}.")
        result: Result = _find(_OPS[request.api_key])(self.state, call, caller, request)
        return result

    def commit_again(self, call: Call, caller: Caller, known: KnownCommit, places: Iterable[tuple[int, int]]) -> Result:
        """As `op`, of a commit that repeats an earlier one."""
        result: Result = _find("offsets.again.commit_again")(self.state, call, caller, known, places)
        return result

    def replay(
        self,
        key: Message,
        value: Message | None,
        producer: Producer | None = None,
        stored: tuple[bytes, bytes | None] | None = None,
    ) -> None:
        """`stored` is the same as bytes, if they are known: offsets are kept as such."""
        if stored is not None and isinstance(key, OffsetCommitKey):
            producer_id = NO_PRODUCER if producer is None else producer.producer_id
            self.state.offsets.replay_value(key.group, key.topic, key.partition, stored[1], producer_id)
        else:
            _find(_REPLAYS[key.record_type])(self.state, key, value, producer)

    def replay_stored(self, key: bytes, value: bytes | None, producer: Producer | None = None) -> None:
        """As `replay`, of a record as it lies in the log. Offsets are by far the most, and are not decoded. Raises
        UnknownRecordTypeError for what a newer version wrote."""
        if key[:2] in _OFFSET_KEYS:
            self.state.offsets.replay_raw(key, value, NO_PRODUCER if producer is None else producer.producer_id)
        else:
            self.replay(*decode_coordinator_record(GROUP_RECORDS, key, value), producer)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction of a producer has ended: its offsets count from now on, or never."""
        _find("offsets.transactional.replay_marker")(self.state, producer_id, is_commit)

    def on_loaded(self, call: Call) -> list[Result]:
        return [_find(function)(self.state, call) for function in _ON_LOADED]

    def on_image(self, call: Call, old: MetadataImage) -> list[Result]:
        """`call.image` is the new one."""
        return [_find(function)(self.state, call, old) for function in _ON_IMAGE]

    def next_deadline_ms(self) -> float | None:
        """When `on_deadline` wants to be called, by the monotonic clock; it may change with every op."""
        return self.state.deadlines.next_ms()

    def on_deadline(self, call: Call) -> Result | None:
        """One thing that is due; None if nothing is. To be called until then."""
        due = self.state.deadlines.pop_due(call.monotonic_ms)
        if due is None:
            return None
        result: Result = _find(_DUE[due[1].partition(".")[0]])(self.state, call, due)
        return result

    def take_work(self, call: Call) -> Steps | None:
        if not self.state.work:
            return None
        _, begin = self.state.work.popitem(last=False)
        return begin(call)

    def forget(self) -> Iterator[None]:
        """Lets go of all that it holds, in steps: freeing a million offsets at once would hold the loop."""
        return self.state.forget()


def import_in_steps() -> Iterator[None]:
    """What ops need, before somebody waits for it: 60 ms, if it were at once."""
    for module in _MODULES:
        import_module(f"tailrace.coordinator.{module}")
        yield
    for place in (*_OPS.values(), *_REPLAYS.values(), *_DUE.values(), *_ON_LOADED, *_ON_IMAGE):
        _find(place)
        yield


_functions: dict[str, Callable[..., Any]] = {}


def _find(place: str) -> Callable[..., Any]:
    found = _functions.get(place)
    if found is None:
        found = _functions[place] = load(f"tailrace.coordinator.{place}")
    return found
