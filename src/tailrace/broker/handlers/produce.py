"""Produce: record batches go to the logs of their partitions.

Every partition stands or falls alone, with its own error code. acks=1 is answered when the log has written, acks=all
when the high watermark has passed the records or `timeout_ms` is over (REQUEST_TIMED_OUT: written, but not
confirmed; NOT_ENOUGH_REPLICAS_AFTER_APPEND: nor can they be, with so few replicas in sync). acks=0 has no answer: an
error closes the connection, which is all that such a client can notice.

A batch that has to be opened (compacted topics, deep validation, another codec) and is large would hold the loop, if it
is more than a few hundred plain records: it is copied out of the connection's buffer and checked in slices, the codecs
in helper threads, while the connection takes no further request. Then it is appended as any other: leadership,
sequences and offsets are decided at that moment, and a topic whose settings changed meanwhile has it checked again.

The first batch of a transaction on a partition waits until the coordinator has said that the partition is part of it
(`coordinators.verification`); meanwhile the connection takes no further request, so that no sequence can overtake.

Version notes: 3 is the first with record batches v2; zstd from 7 on; error messages and record errors from 8 (KIP-467);
leader hints from 10 (KIP-951); TRANSACTION_ABORTABLE from 11, and from 12 on the broker adds partitions to
transactions (KIP-890); topic ids instead of names from 13.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop, sleep
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.broker.context import Pending, UnanswerableError
from tailrace.broker.handlers.leader_hints import hint_leader, node_endpoints
from tailrace.log.validation import InvalidRecordsError, check_at_once
from tailrace.model.config import validates_schema_ids
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import INTERNAL_TOPICS, Uuid
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.records import read_header

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.coordinators.verification import TransactionalProducer, Verification
    from tailrace.broker.refused_batches import Place
    from tailrace.broker.services import Services
    from tailrace.log.validation import CheckedBatch
    from tailrace.model.config import TopicConfig
    from tailrace.replica.partition import Partition

TopicData = ProduceRequest.TopicProduceData
PartitionAnswer = ProduceResponse.PartitionProduceResponse

_VALID_ACKS = (-1, 0, 1)
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_WITH_HINTS = 10
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS_PARTITIONS = 12
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
# Batches of a request that are opened while all others wait; each takes half a millisecond at most.
_CHECKED_AT_ONCE_MAX = 4
# Errors with which Kafka does not tell where the log begins, and those of what is written, which tell no offset.
_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
# The low byte of a batch's attributes, whose lowest three bits name the codec.
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK, _ZSTD = 0x07, 4
_TRANSACTIONAL_BIT = 0x10
# Kafka's own admin client may write to internal topics; nobody else.
_ADMIN_CLIENT_ID = "__admin_client"
_EMPTY = memoryview(b"")


def handle_produce(
    services: Services, context: RequestContext, request: ProduceRequest
) -> Answer | Coroutine[Any, Any, Answer]:
    appends = _Appends(services, context, request)
    response = ProduceResponse(responses=[appends.append_topic(topic) for topic in request.topic_data])
    if appends.slow:
        return _finish_slowly(services, context, request, appends, response)
    return _finish(services, context, request, appends, response)


async def _finish_slowly(
    services: Services, context: RequestContext, request: ProduceRequest, appends: _Appends, response: ProduceResponse
) -> Answer:
    verifications = await appends.verify() if request.transactional_id is not None else []
    try:
        for append in appends.slow:
            await appends.append_slowly(append)
    finally:
        for verification in verifications:
            verification.end()
    return _finish(services, context, request, appends, response)


def _finish(
    services: Services, context: RequestContext, request: ProduceRequest, appends: _Appends, response: ProduceResponse
) -> Answer:
    if request.acks == 0:
        if appends.has_failed or context.joins:  # Of what was refused before there would be something to tell.
            raise UnanswerableError
        return None
    if appends.leaders:
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node_endpoints(services, context.listener.name, appends.leaders)
        ]
    if not appends.waits:
        return response
    return PendingProduce(response, appends.waits, request.timeout_ms)


class _SlowAppend(NamedTuple):
    """A batch that is to be checked in slices, or whose transaction is to be verified: a copy of it, and the place of
    its answer."""

    topic: TopicData
    partition_index: int
    records: memoryview
    answer: PartitionAnswer
    partition: Partition  # As it was found; another one may be there when it is written.
    producer: TransactionalProducer | None = None  # That of a batch that may be the first of its transaction.
    verification: Verification | None = None  # What the coordinator has said of it.


class _Appends:
    """The appends of one request, one after the other, and what has to be waited for."""

    def __init__(self, services: Services, context: RequestContext, request: ProduceRequest) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._seen: set[tuple[str, int]] = set()
        self._at_once_left = _CHECKED_AT_ONCE_MAX
        self.has_failed = False
        self.leaders: set[int] = set()
        self.waits: list[Wait] = []
        self.slow: list[_SlowAppend] = []  # Not begun. Their copies are bounded by the size of the request.

    def append_topic(self, topic: TopicData) -> ProduceResponse.TopicProduceResponse:
        answers: list[PartitionAnswer] = []
        for data in topic.partition_data:
            answer = PartitionAnswer(index=data.index)
            answers.append(answer)
            try:
                self._append(topic, data, answer)
            except KafkaError as error:
                self._fail(topic, answer, data.records, error)
        return ProduceResponse.TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )

    def _append(
        self,
        topic: TopicData,
        data: ProduceRequest.PartitionProduceData,
        answer: PartitionAnswer,
    ) -> None:
        name = self._name(topic)
        records = data.records if isinstance(data.records, memoryview) else _EMPTY
        self._check(name, data.index, records)
        partition = self._services.replicas.find_to_write(name, data.index)
        producer = self._unverified_producer(partition, records)
        log = partition.log
        checked: CheckedBatch | None = None
        is_slow = producer is not None or validates_schema_ids(log.config)
        if not is_slow and log.needs_slices(records):
            checked = self._check_at_once(partition, records, answer)
            is_slow = checked is None
        if is_slow:
            copied = memoryview(bytearray(records))
            self.slow.append(_SlowAppend(topic, data.index, copied, answer, partition, producer))
        else:
            self._write(partition, topic, records, answer, checked)

    def _check_at_once(self, partition: Partition, records: memoryview, answer: PartitionAnswer) -> CheckedBatch | None:
        if not self._at_once_left:
            return None
        self._at_once_left -= 1
        answer.log_start_offset = partition.log_start_offset
        partition.check_may_append(self._request.acks)
        return check_at_once(records, partition.log.check(records))

    def _name(self, topic: TopicData) -> str:
        if self._context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return self._services.replicas.topic_name(topic.topic_id)
        return topic.name

    def _unverified_producer(self, partition: Partition, records: memoryview) -> TransactionalProducer | None:
        """The producer of a transactional batch, unless its transaction is open in this partition."""
        transactional_id = self._request.transactional_id
        if transactional_id is None or not is_transactional(records):
            return None
        partition.check_may_append(self._request.acks)  # Of a mirror its producers would be those of the source.
        header = read_header(records)
        producer_id, epoch = header.producer_id, header.producer_epoch
        producers = partition.log.producers
        if producers.is_in_transaction(producer_id, epoch):
            return None
        state = producers.states.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} writes with epoch {epoch} but {state.epoch} was seen already: its transaction "
                "has ended, or a newer instance has taken over.",
            )
        # Most brokers see no transaction.
        from tailrace.broker.coordinators.verification import TransactionalProducer

        return TransactionalProducer(transactional_id, producer_id, epoch)

    @property
    def _adds(self) -> bool:
        return self._context.api_version >= _FIRST_VERSION_THAT_ADDS_PARTITIONS

    async def verify(self) -> list[Verification]:
        """What is not verified fails; the rest stays in `slow`, with what was said of it."""
        from tailrace.broker.coordinators.verification import wait_verified

        by_producer: dict[TransactionalProducer, list[_SlowAppend]] = {}
        appends, self.slow = self.slow, []
        for append in appends:
            if append.producer is None:
                self.slow.append(append)
            else:
                by_producer.setdefault(append.producer, []).append(append)
        verifications: list[Verification] = []
        for producer, appends in by_producer.items():
            partitions = [append.partition for append in appends]
            verification = await wait_verified(self._services, producer, partitions, adds=self._adds)
            verifications.append(verification)
            for append in appends:
                code = verification.errors.get(append.partition.topic_partition)
                if code is None:
                    self.slow.append(append._replace(verification=verification))
                else:
                    self._fail(append.topic, append.answer, append.records, self._not_verified(code))
        return verifications

    def _not_verified(self, code: ErrorCode) -> KafkaError:
        """What passes becomes what every client tries again. Those of version 2 know that the markers of their last
        transaction may be on their way."""
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code is ErrorCode.TRANSACTION_ABORTABLE and self._context.api_version < _FIRST_VERSION_WITH_ABORTABLE:
            code = ErrorCode.INVALID_TXN_STATE
        elif code in _PASSING and not (self._adds and code is ErrorCode.CONCURRENT_TRANSACTIONS):
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        return KafkaError(code, "The coordinator has not confirmed that the partition is part of the transaction")

    async def append_slowly(self, append: _SlowAppend) -> None:
        try:
            partition = await self._with_schema_ids(append)
            if not partition.log.needs_slices(append.records):
                self._write_slow(append, partition)
                return
            async with self._services.slow_checks:
                partition, checked = await self._check_slowly(append)
                self._write_slow(append, partition, checked)
        except KafkaError as error:
            self._fail(append.topic, append.answer, append.records, error)

    async def _with_schema_ids(self, append: _SlowAppend) -> Partition:
        """The partition, once the schema ids of the batch are known to be good, if its topic asks for that."""
        judged: TopicConfig | None = None
        while True:
            name = self._name(append.topic)
            partition = self._services.replicas.find_to_write(name, append.partition_index)
            log = partition.log
            if judged is log.config or not validates_schema_ids(log.config):
                return partition
            judged = log.config
            append.answer.log_start_offset = partition.log_start_offset
            partition.check_may_append(self._request.acks)
            await self._services.schema_ids.check(name, judged, append.records, log.max_decompressed_bytes)

    def _write_slow(self, append: _SlowAppend, partition: Partition, checked: CheckedBatch | None = None) -> None:
        """In the same turn as the last look at the partition."""
        is_verified = append.verification is not None and append.verification.holds(partition)
        if not is_verified and self._unverified_producer(partition, append.records) is not None:
            # Its transaction was ended meanwhile: another one must not begin here that nobody would end.
            raise self._not_verified(ErrorCode.CONCURRENT_TRANSACTIONS)
        if append.verification is not None and self._adds:
            self._check_begins(append, partition)
        self._write(partition, append.topic, append.records, append.answer, checked)

    def _check_begins(self, append: _SlowAppend, partition: Partition) -> None:
        """The first batch of a producer whose epoch rises with each transaction has sequence 0. Of one that the
        partition does not know, the log alone would take any."""
        header = read_header(append.records)
        if header.base_sequence != 0 and header.producer_id not in partition.log.producers.states:
            append.answer.log_start_offset = partition.log_start_offset
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The first batch of producer {header.producer_id} here has sequence {header.base_sequence}: the one "
                "before it is missing",
            )

    async def _check_slowly(self, append: _SlowAppend) -> tuple[Partition, CheckedBatch]:
        """The partition is looked up again after each check: it may be gone, or its settings may have changed."""
        checked: CheckedBatch | None = None
        while True:
            partition = self._services.replicas.find_to_write(self._name(append.topic), append.partition_index)
            if checked is not None and checked.config is partition.log.config:
                return partition, checked
            append.answer.log_start_offset = partition.log_start_offset
            partition.check_may_append(self._request.acks)
            checked = await self._take_steps(partition, append.records)

    async def _take_steps(self, partition: Partition, records: memoryview) -> CheckedBatch:
        """Others have their turn between two steps."""
        steps = partition.log.check(records)
        try:
            work = next(steps)
            while True:
                if work is not None:
                    work = steps.send(await self._services.ports.background.run(work))
                else:
                    await sleep(0)
                    partition.check_may_append(self._request.acks)  # If not, there is no use in reading on.
                    work = steps.send(b"")
        except StopIteration as done:
            checked: CheckedBatch = done.value
            return checked

    def _write(
        self,
        partition: Partition,
        topic: TopicData,
        records: memoryview,
        answer: PartitionAnswer,
        checked: CheckedBatch | None = None,
    ) -> None:
        acks = self._services.replicas.lease.required_acks(self._request.acks)
        answer.log_start_offset = partition.log_start_offset
        if self._services.refused_batches:
            known = partition.log.producers.states
            self._services.refused_batches.check_first(_place(topic, answer.index), records, known)
        result = partition.append(records, required_acks=acks, checked=checked)
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        if partition.must_wait(result, acks):
            self.waits.append(Wait(partition, result.next_offset, answer, partition.leader_epoch))

    def _check(self, name: str, index: int, records: memoryview) -> None:
        if self._request.acks not in _VALID_ACKS:
            raise KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1 (all), 0 or 1, not {self._request.acks}"
            )
        if self._request.transactional_id is None and is_transactional(records):
            # Nobody would ever end that transaction, and it would hold back every read_committed consumer.
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A transactional batch came in a request without a transactional id: set transactional.id",
            )
        if name in INTERNAL_TOPICS and self._context.client_id != _ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        if (
            self._context.api_version < _FIRST_VERSION_WITH_ZSTD
            and len(records) > _ATTRIBUTES_LOW_BYTE
            and records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK == _ZSTD
        ):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce {self._context.api_version} may not carry zstd: use version 7 or later, or another codec",
            )
        if (name, index) in self._seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}-{index} stands in the request more than once")
        self._seen.add((name, index))

    def _fail(self, topic: TopicData, answer: PartitionAnswer, records: object, error: KafkaError) -> None:
        self.has_failed = True
        error = self._services.replicas.lease.soften(error)
        if isinstance(records, memoryview):
            error = self._services.refused_batches.judge(_place(topic, answer.index), records, error)
            name = topic.name or self._services.image.topic_names.get(Uuid(topic.topic_id), "")
            partition = self._services.replicas.partitions.get((name, answer.index))
            if partition is not None:
                partition.traffic.note_refused(error.code, len(records))
        fill_error(answer, error)
        if self._context.api_version >= _FIRST_VERSION_WITH_HINTS:
            leader = hint_leader(self._services, error, topic.name, topic.topic_id, answer.index)
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
                self.leaders.add(leader[0])


def is_transactional(records: memoryview) -> bool:
    return len(records) > _ATTRIBUTES_LOW_BYTE and bool(records[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_BIT)


def _place(topic: TopicData, index: int) -> Place:
    return topic.name or topic.topic_id, index


def fill_error(answer: PartitionAnswer, error: KafkaError) -> None:
    answer.error_code = int(error.code)
    answer.error_message = error.message or None
    answer.base_offset = answer.log_append_time_ms = -1
    if error.code in _WITHOUT_LOG_START:
        answer.log_start_offset = -1
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


def not_confirmed(partition: Partition) -> KafkaError:
    if partition.is_under_min_isr:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            "The records are written, but too few replicas are in sync since then to confirm them",
        )
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The records are written but were not confirmed in time")


class Wait(NamedTuple):
    """An append that is to be confirmed by the high watermark."""

    partition: Partition
    end_offset: int
    answer: PartitionAnswer
    leader_epoch: int  # In which it was appended.


class PendingProduce(Pending[ProduceResponse]):
    """Everything is appended; the answer waits until the last partition is confirmed or the time is over."""

    __slots__ = ("_response", "_timer", "_unconfirmed")

    def __init__(self, response: ProduceResponse, waits: list[Wait], timeout_ms: int) -> None:
        super().__init__()
        self._response = response
        # By number, each with the callback that its partition has.
        self._unconfirmed: dict[int, tuple[Wait, Callable[[KafkaError | None], None]]] = {}
        self._timer: TimerHandle = get_running_loop().call_later(max(0, timeout_ms) / 1000, self._on_timeout)
        for number, wait in enumerate(waits):
            self._unconfirmed[number] = wait, partial(self._on_confirmed, number)
        # Some may be told at once: what came before a slow check has perhaps been confirmed during it.
        for wait, tell in list(self._unconfirmed.values()):
            if wait.partition.leader_epoch == wait.leader_epoch:
                wait.partition.wait_for_high_watermark(wait.end_offset, tell)
            else:
                # Another leader meanwhile may have had other records at these offsets, and confirmed those.
                tell(wait.partition.not_leader())

    def _on_confirmed(self, number: int, error: KafkaError | None) -> None:
        confirmed = self._unconfirmed.pop(number, None)
        if confirmed is not None and error is not None:
            fill_error(confirmed[0].answer, error)
        if not self._unconfirmed and not self.is_over:
            self._timer.cancel()
            self.complete(self._response)

    def _on_timeout(self) -> None:
        for wait, _tell in self._unconfirmed.values():
            fill_error(wait.answer, not_confirmed(wait.partition))
        self._stop_waiting()
        self.complete(self._response)

    def abandon(self) -> None:
        super().abandon()
        self._timer.cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        for wait, tell in self._unconfirmed.values():
            wait.partition.produces.discard(tell)
        self._unconfirmed.clear()


Answer = ProduceResponse | PendingProduce | None
