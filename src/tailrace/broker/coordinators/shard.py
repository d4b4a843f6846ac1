"""One partition that this broker coordinates: a pure machine, and the log that it is replayed from.

    LOADING   the log is being replayed; requests are refused with COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE    requests, deadlines, images and computations become ops
    CLOSED    another broker leads, or a later epoch has begun: everyone who waits is told NOT_COORDINATOR

An op's records change the machine at once and are written at the end of the turn, those of all its ops in one batch. An
answer waits until everything written before it is committed. So nobody is told of what a failed write or another leader
could take back. When a write fails, all who wait are told to ask again, and the machine is loaded anew from the log.

What takes long is done in slices: deadlines that have gathered, and the computations that a machine asks for.
Knows nothing of groups: any machine that is replayed from a partition can live here.
"""

from __future__ import annotations

from asyncio import Handle, TimerHandle, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.coordinators.batches import Batch, EncodedRecords
from tailrace.broker.coordinators.calls import give
from tailrace.coordinator.op import Call, Caller, Producer, Result, Steps, StoredRecord, Told
from tailrace.log.log import AppendResult
from tailrace.log.validation import CheckedBatch, Origin
from tailrace.model import events
from tailrace.model.attention import timer_seconds
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.partition import ACKS_ALL
from tailrace.wire.records import HEADER_SIZE, read_header
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.coordinators.calls import CoordinatorCall
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.replica.partition import Partition

_log = events.logger("coordinator")

# How long deadlines or a computation may hold the loop in one turn.
_SLICE_MS = 1.0
# Each takes some 20 microseconds, until it is sent.
_ANSWERS_PER_TURN = 50
# A broker that does not know whether it still leads lets deadlines wait until it does.
_LEASE_RETRY_MS = 100.0

_NEVER_MS = float("inf")
_BUG = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed on this request; the broker's log says why.")

Answers = Sequence[tuple[Told, Message]]


class Machine(Protocol):
    def op(self, call: Call, caller: Caller, request: Message) -> Result: ...

    def replay(
        self,
        key: Message,
        value: Message | None,
        producer: Producer | None = None,
        stored: tuple[bytes, bytes | None] | None = None,
    ) -> None: ...

    def replay_stored(self, key: bytes, value: bytes | None, producer: Producer | None = None) -> None: ...

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None: ...

    def on_loaded(self, call: Call) -> list[Result]: ...

    def on_image(self, call: Call, old: MetadataImage) -> list[Result]: ...

    def next_deadline_ms(self) -> float | None: ...

    def on_deadline(self, call: Call) -> Result | None: ...

    def take_work(self, call: Call) -> Steps | None: ...

    def forget(self) -> Iterator[None]: ...


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Unconfirmed:
    """Answers that wait until what was written before them is committed."""

    __slots__ = ("_shard", "answers", "due_ms", "end_offset")

    def __init__(self, shard: Shard, answers: list[tuple[Told, Message]], end_offset: int, due_ms: float) -> None:
        self._shard = shard
        self.answers = answers
        self.end_offset = end_offset
        self.due_ms = due_ms

    def tell(self, error: KafkaError | None) -> None:
        self._shard.on_confirmed(self, error)


class Shard:
    def __init__(
        self,
        node: Node,
        index: int,
        *,
        leader_epoch: int,
        make_machine: Callable[[], Machine],
        load_soon: Callable[[Shard], None],
    ) -> None:
        """Somebody has to load it now, and again whenever `load_soon` is called."""
        self.index = index
        self.leader_epoch = leader_epoch
        self.machine = make_machine()
        self.state = State.LOADING
        self._node = node
        self._partition: Partition | None = None  # While it is active.
        self._make_machine = make_machine
        self._load_soon = load_soon
        self._loop = get_running_loop()
        # Who has no answer yet. Bounded by what connections may have in flight.
        self._open: dict[Told, None] = {}
        self._batch = Batch()
        self._batch_answers: list[tuple[Told, Message]] = []  # This turn's: they wait for the batch.
        self._end_offset = 0  # Where all ends that was written, or found when it was loaded.
        self._unconfirmed: deque[_Unconfirmed] = deque()
        self._turn: Handle | None = None
        self._timer: TimerHandle | None = None
        self._timer_ms = _NEVER_MS
        self._confirm_timer: TimerHandle | None = None
        self._work: Steps | None = None
        self._is_taking = False

    def __repr__(self) -> str:
        return f"<Shard {self.index} epoch={self.leader_epoch} {self.state.value}>"

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def has_unwritten(self) -> bool:
        """The machine is ahead of the log, until the turn ends."""
        return bool(self._batch)

    @property
    def may_act(self) -> bool:
        return self._node.replicas.lease.allows(self._partition)

    @property
    def partition(self) -> Partition:
        assert self._partition is not None, "the shard is not loaded"
        return self._partition

    # ---- life

    def begin_loading(self) -> Machine:
        """An empty machine, which is the shard's from now on."""
        self._renew_machine()
        return self.machine

    def activate(self, partition: Partition, end_offset: int) -> None:
        """The machine holds everything that is in the log before `end_offset`."""
        self._partition, self._end_offset = partition, end_offset
        self.state = State.ACTIVE
        self.decide(self.machine.on_loaded)

    def close(self) -> None:
        self.state = State.CLOSED
        self._drop(self._refusal())

    def check_active(self) -> None:
        """Raises what a client is told who asks too early or too late."""
        if not self.is_active:
            raise self._refusal()

    def _refusal(self) -> KafkaError:
        if self.state is State.LOADING:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is still reading its log")
        return KafkaError(ErrorCode.NOT_COORDINATOR, "This broker does not coordinate it any more")

    def _load_anew(self) -> None:
        """The machine believes what is not in the log. All who wait have to ask again."""
        self.state = State.LOADING
        self._drop(KafkaError(ErrorCode.NOT_COORDINATOR, "The coordinator has to read its log again"))
        self._load_soon(self)

    def _drop(self, error: KafkaError) -> None:
        for handle in (self._turn, self._timer, self._confirm_timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = self._confirm_timer = self._work = None
        self._timer_ms = _NEVER_MS
        for unconfirmed in self._unconfirmed:
            self.partition.produces.discard(unconfirmed.tell)
        self._unconfirmed.clear()
        self._batch, self._batch_answers = Batch(), []
        waiting, self._open = self._open, {}
        for call in list(waiting):  # A connection that breaks over its answer takes its other calls back.
            call.fail(error)
        self._renew_machine()

    def _renew_machine(self) -> None:
        self._forget(self.machine.forget())
        self.machine = self._make_machine()

    def _forget(self, steps: Iterator[None]) -> None:
        """Forgets a machine, one step a turn."""
        for _ in steps:
            self._loop.call_soon(self._forget, steps)
            return

    # ---- ops

    def _call(self) -> Call:
        """The world as it is now. Members are judged by patient time: their heartbeats may lie unread."""
        node = self._node
        clock = node.ports.clock
        return Call(clock.wall_ms(), clock.patient_ms(), node.image, node.config, node.ports.random)

    def submit(self, caller: CoordinatorCall) -> None:
        if self._is_taking:
            # An answer has made room for its connection's next request, while earlier results are not all replayed.
            self._loop.call_soon(self.submit, caller)
            return
        if self.state is not State.ACTIVE:
            caller.fail(self._refusal())
            return
        caller.open_calls = self._open
        self._open[caller] = None
        try:
            result = caller.decide(self.machine, self._call())
        except KafkaError as error:
            result = Result(answers=((caller, caller.failure(error)),))
        except Exception as error:
            self._report_bug(error)
            result = Result(answers=((caller, caller.failure(_BUG)),))
        self._take((result,))

    def confirm(self, caller: CoordinatorCall, answer: Message) -> None:
        """Gives an answer of what was found by a look at the machine, as if an op had given it."""
        if self.state is not State.ACTIVE:
            caller.fail(self._refusal())
            return
        caller.open_calls = self._open
        self._open[caller] = None
        self._take((Result(answers=((caller, answer),)),))

    def on_image(self, old: MetadataImage) -> None:
        if self.is_active:
            self.decide(lambda call: self.machine.on_image(call, old))

    def decide(self, decide: Callable[[Call], Sequence[Result]]) -> None:
        """What no client has asked for."""
        try:
            results = decide(self._call())
        except Exception as error:
            self._report_bug(error)
            return
        self._take(results)

    def write_marker(self, marker: memoryview, *, producer_id: int, is_commit: bool) -> AppendResult:
        """The end of a producer's transaction on this partition. Raises KafkaError, and then nothing has changed."""
        self.check_active()
        if self._batch:
            self._write()
            self.check_active()
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch:
            raise partition.not_leader()
        written = partition.append(marker, required_acks=ACKS_ALL, origin=Origin.COORDINATOR)
        self._end_offset = written.next_offset
        self.machine.replay_marker(producer_id, is_commit=is_commit)
        return written

    def _take(self, results: Sequence[Result]) -> None:
        was_taking, self._is_taking = self._is_taking, True
        try:
            for result in results:
                if self.is_active and (not result.records or self._store(result)) and result.answers:
                    self._answer(result.answers)
        finally:
            self._is_taking = was_taking
        self._end_turn_soon()

    def _store(self, result: Result) -> bool:
        """Replays the records, and leaves them to be written at the end of the turn. False if that failed: all who wait
        for it have been told."""
        max_bytes = self.partition.log.config.max_message_bytes
        try:
            encoded = EncodedRecords(result.records)
        except ValueError as error:
            self._refuse(result, f"a record does not fit its form: {error}")
            return False
        if HEADER_SIZE + encoded.size_bytes > max_bytes:
            self._refuse(result, f"{encoded.size_bytes} bytes of records are more than {max_bytes}")
            return False
        if result.producer is not None and not self._may_write(result):
            return False
        if self._batch and (result.producer is not None or self._batch.size_bytes + encoded.size_bytes > max_bytes):
            self._write()
            if not self.is_active:
                return False
        self._batch.add(encoded, self._node.ports.clock.wall_ms())
        try:
            for record, stored in zip(result.records, encoded.pairs, strict=True):
                if isinstance(record, StoredRecord):
                    self.machine.replay(record.key, record.value, result.producer, stored)
                else:
                    self.machine.replay_stored(*stored, result.producer)
        except Exception as error:
            # They are not in the log yet, and must not come there.
            self._report_bug(error)
            self._load_anew()
            return False
        if result.producer is not None:
            self._write(result.producer)
            return self.is_active
        return True

    def _may_write(self, result: Result) -> bool:
        """Whether the log would take the records of a transaction. A zombie is refused before it changes anything."""
        assert result.producer is not None, "asked for transactions alone"
        state = self.partition.log.producers.states.get(result.producer.producer_id)
        if state is None or state.epoch <= result.producer.producer_epoch:
            return True
        reason = f"Producer {result.producer.producer_id} has epoch {state.epoch} by now"
        self._fail(result.answers, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, reason))
        return False

    def _refuse(self, result: Result, cause: str) -> None:
        _log.warning("a coordinator's records cannot be written", partition=self.index, cause=cause)
        self._fail(result.answers, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, cause))
        on_refused = result.on_refused
        if on_refused is None:
            self._load_anew()
        else:
            self.decide(lambda call: [on_refused(call)])

    def _report_bug(self, error: Exception) -> None:
        """What the machine believes may be wrong, and so what was replayed into it: if the partition goes offline with
        it, nobody is told anything more here, and the broker that leads next replays it anew."""
        _log.error("a coordinator failed", trace=True, partition=self.index)
        self._node.judge_bug(error, self._partition)
        if self.is_active and self.partition.log.is_offline:
            self._load_anew()

    # ---- the end of a turn

    def _end_turn_soon(self) -> None:
        if self._turn is None and self.is_active:
            self._turn = self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None
        if self._batch:
            self._write()
        if self.is_active:
            self._arm_timer()
            self._go_on_working()

    def _write(self, producer: Producer | None = None) -> None:
        batch, answers = self._batch, self._batch_answers
        self._batch, self._batch_answers = Batch(), []
        partition = self.partition
        try:
            if partition.leader_epoch != self.leader_epoch:
                raise partition.not_leader()
            view = batch.build(producer)
            # What was built here need not be opened again to see whether it has keys, unless it has to be compressed.
            is_as_wanted = partition.log.config.compression_type == "producer"
            checked = CheckedBatch(view, read_header(view), partition.log.config) if is_as_wanted else None
            written = partition.append(view, required_acks=1, origin=Origin.COORDINATOR, checked=checked)
        except KafkaError as error:
            _log.warning("a coordinator cannot write", partition=self.index, cause=error)
            self.state = State.LOADING  # Before anybody is told: the next request must not find what was not written.
            self._fail(answers, error)
            self._load_anew()
            return
        self._end_offset = written.next_offset
        if answers:
            self._wait(answers)

    # ---- answers

    def _answer(self, answers: Answers) -> None:
        if self._batch:
            self._batch_answers += answers
        elif self.partition.high_watermark >= self._end_offset:
            self._give(answers)
        elif self._unconfirmed and self._unconfirmed[-1].end_offset == self._end_offset:
            self._unconfirmed[-1].answers += answers
        else:
            self._wait(list(answers))

    def _wait(self, answers: list[tuple[Told, Message]]) -> None:
        """Until everything that was written is committed."""
        if self.partition.high_watermark >= self._end_offset:
            self._give(answers)
            return
        timeout_ms = self._node.config.offsets_commit_timeout_ms
        due_ms = self._node.ports.clock.monotonic_ms() + timeout_ms
        unconfirmed = _Unconfirmed(self, answers, self._end_offset, due_ms)
        self._unconfirmed.append(unconfirmed)
        if self._confirm_timer is None:
            self._confirm_timer = self._loop.call_later(timeout_ms / 1000, self._on_unconfirmed)
        self.partition.wait_for_high_watermark(self._end_offset, unconfirmed.tell)

    def on_confirmed(self, unconfirmed: _Unconfirmed, error: KafkaError | None) -> None:
        if unconfirmed not in self._unconfirmed:
            return
        self._unconfirmed.remove(unconfirmed)
        if error is None:
            self._give(unconfirmed.answers)
        else:
            self._fail(unconfirmed.answers, error)

    def _on_unconfirmed(self) -> None:
        """Written, but not committed in time. It may still be: the client has to ask again."""
        self._confirm_timer = None
        now_ms = self._node.ports.clock.monotonic_ms()
        while self._unconfirmed and self._unconfirmed[0].due_ms <= now_ms:
            unconfirmed = self._unconfirmed.popleft()
            self.partition.produces.discard(unconfirmed.tell)
            self._fail(unconfirmed.answers, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "It was not committed in time"))
        if self._unconfirmed:
            delay_ms = max(0.0, self._unconfirmed[0].due_ms - now_ms)
            self._confirm_timer = self._loop.call_later(delay_ms / 1000, self._on_unconfirmed)

    def _give(self, answers: Answers) -> None:
        """Many of them in several turns: each is encoded and sent at once where its connection waits for nothing else.
        If the shard is closed meanwhile, the others have been told that."""
        for told, response in answers[:_ANSWERS_PER_TURN]:
            self._open.pop(told, None)
            give(told, response, self._node.replicas.lease)
        if len(answers) > _ANSWERS_PER_TURN:
            self._loop.call_soon(self._give, answers[_ANSWERS_PER_TURN:])

    def _fail(self, answers: Answers, error: KafkaError) -> None:
        error = self._node.replicas.lease.soften(error)
        for told, _ in answers:
            self._open.pop(told, None)
            told.fail(error)

    # ---- what is due

    def _arm_timer(self) -> None:
        """For the earliest deadline. One that has been put off is found too early, and looked for again then: members
        that are heard put theirs off all the time."""
        due_ms = self.machine.next_deadline_ms()
        if due_ms is None or due_ms >= self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_seconds = timer_seconds(due_ms - self._node.ports.clock.patient_ms())
        self._timer = self._loop.call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, _NEVER_MS
        if not self.may_act:
            self._timer = self._loop.call_later(_LEASE_RETRY_MS / 1000, self._on_timer)
            return
        clock = self._node.ports.clock
        slice_ends_ms = clock.monotonic_ms() + _SLICE_MS
        while self.is_active and clock.monotonic_ms() < slice_ends_ms:
            try:
                result = self.machine.on_deadline(self._call())
            except Exception as error:
                self._report_bug(error)
                continue  # What failed is not due any more.
            if result is None:
                break
            self._take((result,))
        self._end_turn_soon()

    # ---- what takes long

    def _go_on_working(self) -> None:
        """A slice of the computation that is under way, or of the next one."""
        if self._work is None:
            self._work = self.machine.take_work(self._call())
            if self._work is None:
                return
        clock = self._node.ports.clock
        slice_ends_ms = clock.monotonic_ms() + _SLICE_MS
        try:
            while clock.monotonic_ms() < slice_ends_ms:
                next(self._work)
        except StopIteration as done:
            self._work = None
            self._take((done.value,))
        except Exception as error:
            self._work = None
            self._report_bug(error)
        self._end_turn_soon()
