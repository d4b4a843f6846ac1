"""The express lane of Produce: pipelined one-batch requests without decoding, many of them in one write.

A producer repeats itself: the bytes of its requests from the client id to the number of partitions are the same
again and again. A lane remembers those bytes and what they mean. While requests match it, what is left of each is
a partition index, one batch and, in flexible versions, three empty tag sections; the answer is one `pack`.

    a request of one record costs 15 us the general way, and 2.6 us this way

Everything else takes the general path, which is always right: another API, another version or topic, several
partitions, acks=0, a transaction, a batch that is not plain (see log.plain), a partition that is not led here or
has too few replicas in sync. Both ways meet in `Partition`, and this one changes nothing in what a client sees.
Requests that arrived together are judged one by one, in order; the first that does not fit ends the run. What was
judged is then written, one write a partition, and only after that are the answers queued. With acks=all the answers of
a run wait together until the high watermark has passed the last of its records, or the time is over.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Sized
from functools import partial
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import Pending
from tailrace.broker.handlers.produce import fill_error, not_confirmed
from tailrace.broker.outbox import Outbox
from tailrace.log.plain import PlainBatch, read_plain
from tailrace.model.errors import KafkaError, ProtocolError
from tailrace.model.ids import INTERNAL_TOPICS, Uuid
from tailrace.model.ports import Bytes, FileSlice
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.compile import decode_from
from tailrace.wire.frame import decode_request_header, encode_response

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.replica.partition import Partition

PartitionAnswer = ProduceResponse.PartitionProduceResponse
# Of one request of a run: correlation id, partition index, partition, number of records.
Taken = tuple[int, int, "Partition", int]

_ACKS_ALL = -1
_PRODUCE = 0
# Size, API key and version as one number, correlation id.
_unpack_head = Struct(">iIi").unpack_from
_HEAD_BYTES = 12
_unpack_int = Struct(">i").unpack_from
_unpack_two_ints = Struct(">ii").unpack_from
# Produce has API key 0, so that key and version together are the version. Zstd is refused below version 7.
_VERSION_MIN = 7
_VERSION_MAX = 13
_FIRST_FLEXIBLE_VERSION = 9
_FIRST_VERSION_WITH_TOPIC_IDS = 13
# The empty tag sections of the partition, the topic and the request.
_NO_TAGS = bytes(3)
# Lanes of one connection: the topics that a producer writes to in turn. Above it the oldest is forgotten.
_LANES_MAX = 8
# One topic with one partition; a request that lists more is not worth decoding here.
_LANE_ITEMS_MAX = 2
# Learning a lane costs as much as four requests: a client whose requests never repeat must not pay for it each time.
_CREDIT_MAX = 16
# Of small requests taken at once: about a millisecond, after which the connection looks whether its turn is over.
RUN_MAX_BYTES = 64 * 1024
# After a request that fitted a lane but had to go the general way, this many follow it without being tried: those of an
# idempotent producer never are plain.
_REST = 63
# Found in no topic name, for it is not UTF-8; marks the place of the base offset in a template.
_MARK = 0x0123456789ABCDEF


class Lane:
    """What the repeated bytes of a producer's requests mean, and how its answers are built."""

    __slots__ = (
        "acks",
        "answer_size",
        "head",
        "is_flexible",
        "pack",
        "partitions",
        "prefix",
        "rest",
        "tail",
        "timeout_ms",
        "topic",
        "topic_data",
        "version",
    )

    def __init__(self, version: int, prefix: bytes, topic: str, request: ProduceRequest, template: bytes) -> None:
        self.version = version
        self.prefix = prefix
        self.topic = topic
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        named = request.topic_data[0]
        # As the client named it, for answers that are not packed.
        self.topic_data = ProduceRequest.TopicProduceData(name=named.name, topic_id=named.topic_id)
        self.rest = 0  # Requests to let pass because the last one did not fit.
        self.is_flexible = version >= _FIRST_FLEXIBLE_VERSION
        self.partitions: dict[int, Partition] = {}  # Bounded by the partitions that exist.
        marked = template.rindex(_MARK.to_bytes(8, "big"))
        # Size and correlation id, what comes before the partition's own fields, those fields, and the rest.
        self.head, self.tail = template[8 : marked - 6], template[marked + 24 :]
        self.answer_size = len(template) - 4
        self.pack: Callable[..., bytes] = Struct(f">ii{len(self.head)}sihqqq{len(self.tail)}s").pack

    def encode_error(self, correlation_id: int, index: int, error: KafkaError) -> Bytes:
        answer = PartitionAnswer(index=index)
        fill_error(answer, error)
        return _encode(self.version, correlation_id, self.topic_data, answer)


class PendingRun(Pending[Any]):
    """The answers to a run whose records are written and not yet confirmed, in their order."""

    __slots__ = ("_errors", "_lane", "_taken", "_timer", "_unconfirmed", "answers")

    def __init__(self, lane: Lane, taken: list[Taken], answers: list[Bytes], waits: dict[Partition, int]) -> None:
        """`answers` are those that are given if all goes well, `waits` the end offsets to wait for."""
        super().__init__()
        self.answers = answers
        self._lane = lane
        self._taken = taken
        self._errors: dict[Partition, KafkaError] = {}
        self._timer: TimerHandle = get_running_loop().call_later(max(0, lane.timeout_ms) / 1000, self._on_timeout)
        self._unconfirmed = {partition: partial(self._on_confirmed, partition) for partition in waits}
        for partition, tell in list(self._unconfirmed.items()):
            partition.wait_for_high_watermark(waits[partition], tell)

    def _on_confirmed(self, partition: Partition, error: KafkaError | None) -> None:
        if self._unconfirmed.pop(partition, None) is not None and error is not None:
            self._errors[partition] = error
        if not self._unconfirmed and not self.is_over:
            self._timer.cancel()
            self._finish()

    def _on_timeout(self) -> None:
        for partition in self._unconfirmed:
            self._errors[partition] = not_confirmed(partition)
        self._stop_waiting()
        self._finish()

    def _finish(self) -> None:
        if self._errors:
            for number, (correlation_id, index, partition, _count) in enumerate(self._taken):
                if partition in self._errors:
                    self.answers[number] = self._lane.encode_error(correlation_id, index, self._errors[partition])
        self.complete(self.answers)

    def abandon(self) -> None:
        super().abandon()
        self._timer.cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        for partition, tell in self._unconfirmed.items():
            partition.produces.discard(tell)
        self._unconfirmed.clear()


class Express:
    """The lanes of one connection."""

    __slots__ = ("_broker", "_credit", "_keep", "_lanes", "_outbox", "_slots")

    def __init__(
        self, broker: Broker, outbox: Outbox, slots: Sized, keep: Callable[[list[Bytes], PendingRun | None], None]
    ) -> None:
        """`slots` are the answers that go before; while there are some, or if the run has to wait, its own are given to
        `keep`."""
        self._broker = broker
        self._outbox = outbox
        self._slots = slots
        self._keep = keep
        self._lanes: list[Lane] = []  # The one used last comes first.
        self._credit = _CREDIT_MAX

    def take(self, buffer: bytearray, view: memoryview, position: int, end: int) -> int:
        """Serves requests from `position` on, as long as they fit, up to a bound; gives the position behind them."""
        turn_end = min(end, position + RUN_MAX_BYTES) - _HEAD_BYTES
        if position > turn_end or not _VERSION_MIN <= _unpack_head(buffer, position)[1] <= _VERSION_MAX:
            return position  # Most requests of followers and consumers.
        replicas = self._broker.replicas
        # A broker past its lease answers as a leader of nothing, the general way.
        if replicas.flusher.is_saturated or (replicas.lease_ends_ms != inf and replicas.is_past_lease):
            return position
        while position <= turn_end:
            size, key_and_version, _correlation_id = _unpack_head(buffer, position)
            if not _VERSION_MIN <= key_and_version <= _VERSION_MAX or not 0 < size <= end - position - 4:
                return position
            lane = self._find_lane(buffer, key_and_version, position + _HEAD_BYTES)
            if lane is None:
                lane = self._learn(view[position + 4 : position + 4 + size], key_and_version)
                if lane is None:
                    return position
            if lane.rest:
                lane.rest -= 1
                return position
            reached = self._run(lane, buffer, view, position, end)
            if reached == position:
                lane.rest = _REST
                return position
            position = reached
        return position

    def _find_lane(self, buffer: bytearray, version: int, start: int) -> Lane | None:
        lanes = self._lanes
        for number, lane in enumerate(lanes):
            prefix = lane.prefix
            if lane.version == version and buffer[start : start + len(prefix)] == prefix:
                if number:
                    lanes.insert(0, lanes.pop(number))
                return lane
        return None

    def _run(self, lane: Lane, buffer: bytearray, view: memoryview, position: int, end: int) -> int:
        version, prefix, partitions = lane.version, lane.prefix, lane.partitions
        prefix_size, is_flexible = len(prefix), lane.is_flexible
        now_ms = self._broker.ports.clock.wall_ms()
        groups: dict[Partition, list[PlainBatch]] = {}
        taken: list[Taken] = []
        group_bytes = 0
        while end - position >= _HEAD_BYTES and group_bytes < RUN_MAX_BYTES:
            size, key_and_version, correlation_id = _unpack_head(buffer, position)
            frame_end = position + 4 + size
            start = position + _HEAD_BYTES + prefix_size
            if (
                key_and_version != version
                or not start + 8 < frame_end <= end
                or buffer[position + _HEAD_BYTES : start] != prefix
            ):
                break
            if is_flexible:
                (index,) = _unpack_int(buffer, start)
                start = _records_start(buffer, start + 4, frame_end)
                records = view[start : frame_end - 3]
            else:
                index, records_size = _unpack_two_ints(buffer, start)
                start += 8
                if records_size != frame_end - start:
                    break
                records = view[start:frame_end]
            partition = partitions.get(index) or self._find_partition(lane, index)
            if partition is None or not partition.takes_plain:
                partitions.pop(index, None)
                break
            batch = read_plain(records, partition.plain_rules, now_ms)
            if batch is None:
                break
            if partition in groups:
                groups[partition].append(batch)
            else:
                groups[partition] = [batch]
            taken.append((correlation_id, index, partition, batch[2] + 1))
            group_bytes += size
            position = frame_end
        if taken:
            self._credit = min(_CREDIT_MAX, self._credit + len(taken))
            self._write(lane, groups, taken)
        return position

    def _write(self, lane: Lane, groups: dict[Partition, list[PlainBatch]], taken: list[Taken]) -> None:
        offsets: dict[Partition, int] = {}
        failures: dict[Partition, KafkaError] = {}
        waits: dict[Partition, int] = {}
        for partition, batches in groups.items():
            try:
                offsets[partition] = partition.append_plain(batches)
            except KafkaError as error:
                failures[partition] = error
                continue
            end_offset = partition.log.log_end_offset
            if partition.high_watermark < end_offset and lane.acks == _ACKS_ALL:
                waits[partition] = end_offset
        pack, size, head, tail = lane.pack, lane.answer_size, lane.head, lane.tail
        answers: list[Bytes] = []
        for correlation_id, index, partition, count in taken:
            if partition in failures:
                answers.append(lane.encode_error(correlation_id, index, failures[partition]))
                continue
            base_offset = offsets[partition]
            offsets[partition] = base_offset + count
            start_offset = partition.log.log_start_offset
            answers.append(pack(size, correlation_id, head, index, 0, base_offset, -1, start_offset, tail))
        if waits:
            self._keep(answers, PendingRun(lane, taken, answers, waits))
        elif self._slots:
            self._keep(answers, None)
        else:
            self._outbox.put_all(answers)

    def _find_partition(self, lane: Lane, index: int) -> Partition | None:
        partition = self._broker.replicas.partitions.get((lane.topic, index))
        if partition is None:
            return None
        if lane.version >= _FIRST_VERSION_WITH_TOPIC_IDS and partition.topic_id != lane.topic_data.topic_id:
            return None  # Another topic has the name by now.
        lane.partitions[index] = partition
        return partition

    def _learn(self, frame: memoryview, version: int) -> Lane | None:
        """A lane for requests like this one, if it is of the kind that has one."""
        if self._credit <= 0:
            return None
        self._credit -= 1
        try:
            _header, position = decode_request_header(frame)
            request, position = decode_from(ProduceRequest, version, frame, position, items_max=_LANE_ITEMS_MAX)
        except ProtocolError:
            return None
        if position != len(frame):
            return None
        topic = request.topic_data[0] if len(request.topic_data) == 1 else None
        if topic is None or len(topic.partition_data) != 1 or request.transactional_id is not None:
            return None
        records = topic.partition_data[0].records
        name = topic.name
        if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            name = self._broker.image.topic_names.get(Uuid(topic.topic_id), "")
        if not records or request.acks not in (1, -1) or name in INTERNAL_TOPICS or not name:
            return None
        template = _encode(version, 0, topic, PartitionAnswer(base_offset=_MARK, log_start_offset=0))
        lane = Lane(version, _prefix(frame, version, len(records)), name, request, bytes(template))
        self._lanes.insert(0, lane)
        del self._lanes[_LANES_MAX:]
        return lane


def _prefix(frame: memoryview, version: int, records_size: int) -> bytes:
    """From the client id to the number of partitions, of a frame without its size."""
    end = len(frame) - records_size - 8
    if version >= _FIRST_FLEXIBLE_VERSION:
        length_size = ((records_size + 1).bit_length() + 6) // 7
        end = len(frame) - len(_NO_TAGS) - records_size - length_size - 4
    return bytes(frame[_HEAD_BYTES - 4 : end])


def _records_start(buffer: bytearray, position: int, frame_end: int) -> int:
    """Behind the compact length at `position`, if it says that the records reach to the empty tag sections at the end
    of the frame; else the end of the frame."""
    length = shift = 0
    start = position
    while shift <= 21:
        byte = buffer[start]
        start += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    tags = frame_end - len(_NO_TAGS)
    return start if start + length - 1 == tags and buffer[tags:frame_end] == _NO_TAGS else frame_end


def _encode(
    version: int, correlation_id: int, topic: ProduceRequest.TopicProduceData, answer: PartitionAnswer
) -> Bytes:
    answers = ProduceResponse.TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=[answer]
    )
    (encoded,) = encode_response(_PRODUCE, version, correlation_id, ProduceResponse(responses=[answers]))
    assert not isinstance(encoded, FileSlice), "an answer to Produce carries no records"
    return encoded
