"""The express lane of Produce: pipelined one-batch requests without decoding, many of them in one write.

A producer repeats itself: the bytes of its requests from the client id to the number of partitions are the same
again and again. A lane remembers those bytes and what they mean. While requests match it, what is left of each is
a partition index, one batch and, in flexible versions, three empty tag sections; the answer is one `pack`. Lanes are
found by those bytes, whose length a few fields tell (`lanes`), so that a producer may write to many topics in turn.

    a request of one record costs 15 us the general way, and 2.6 us this way

The steps of the pipeline (`dispatch`), and what becomes of them here:

    decode      once for a lane, when it is learned: requests with the same bytes mean the same
    authorise   once for a lane, when it is learned: the number below is raised whenever an ACL has changed.
                Transactional batches, of which more is asked, have no lanes
    admit       left out, for Produce has no such steps. Where the catalogue names one there are no lanes at all
                (`may_be_used`)
    account     once for a run, while some quota is set: its time and bytes, and the throttle goes into its answers
    handle      here, in the same `Partition` as the general path
    encode      once for a lane: what differs between two answers is packed into the first one's bytes
    send        as all answers, in their places
    measure     counted once for a run; its time is taken for one run in about metrics.express.sample.every

What a lane has learned holds until `services.lanes` is raised, by whoever changes what it relies on: then all lanes of
all connections are forgotten, and learned anew. What may change with each request is no part of a lane, and looked at
each time: the lease, and whether the partition is led here and takes plain batches with the settings that it has now.

Everything else takes the general path, which is always right: another API, several topics or partitions in a request,
acks=0, a transaction, a batch that is not plain (`log.plain_batches`), a partition that is not led here or has too few
replicas in sync. This way changes nothing in what a client sees.

Requests that arrived together are judged one by one, in order; the first that does not fit, or has other acks or
another timeout, ends the run. What was judged is then written, one write a partition, and only after that are the
answers queued. With acks=all the answers of a run wait together until the high watermark has passed the last of its
records, or the time is over.

    ten topics in turn, one record a request, cost 9 us if each request is a run, and 4.2 us in common runs

An idempotent producer's batch is judged by the log as on the general path, or, behind others of the run that are not
written yet, by the last of them, which must be of the same producer: else the run ends, and the next one begins with
what the log knows by then. So nothing has to be taken back if the write fails; that it did is told to
`broker.refused_batches`, for the sake of those that follow.

    such a request costs 24 us the general way, and 4.2 us this way
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Iterator
from functools import partial
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import Pending
from tailrace.broker.handlers.produce import not_confirmed
from tailrace.broker.quotas.tolls import RunToll
from tailrace.broker.serving.lanes import FIRST_VERSION_WITH_TOPIC_IDS, Lane, index_position, prefix_end, records_start
from tailrace.broker.serving.measuring import NO_ERRORS, Measurement
from tailrace.broker.serving.outbox import Outbox, Slots
from tailrace.catalogue import CATALOGUE
from tailrace.log.log import AppendResult
from tailrace.log.plain_batches import PlainBatch, read_plain
from tailrace.log.producers import follows
from tailrace.log.validation import Origin
from tailrace.model.errors import KafkaError, ProtocolError
from tailrace.model.ids import INTERNAL_TOPICS, Uuid
from tailrace.model.ports import Buffer, Bytes
from tailrace.wire.apis.data import ProduceRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode_from
from tailrace.wire.frame import decode_request_header
from tailrace.wire.records import BatchHeader

if TYPE_CHECKING:
    from tailrace.broker.quotas.tolls import ThrottledClient
    from tailrace.broker.services import Services
    from tailrace.broker.serving.commits.taking import Commits, Keep
    from tailrace.replica.partition import Partition

# One request of a run: correlation id, lane, partition index, partition, number of records.
Taken = tuple[int, Lane, int, "Partition", int]

_CLIENT = Origin.CLIENT
# Size, API key and version as one number, correlation id.
_unpack_head = Struct(">iIi").unpack_from
_HEAD_BYTES = 12
_unpack_int = Struct(">i").unpack_from
_unpack_two_ints = Struct(">ii").unpack_from
# Produce has API key 0, so that key and version together are the version. Zstd is refused below version 7.
_VERSION_MIN = 7
_VERSION_MAX = 13
# Lanes of one connection: the topics that a producer writes to in turn. Above it the one learned first is forgotten.
# A lane takes 1 KB, and its prefix up to 512 bytes.
_LANES_MAX = 1000
# One topic with one partition; a request that lists more is not worth decoding here.
_LANE_ITEMS_MAX = 2
# Learning a lane costs as much as four requests: a client whose requests never repeat must not pay for it each time.
# One that writes to a thousand topics in turn has learned them in its eighth round.
_CREDIT_MAX = 128
# How much of small requests is taken at once: about a millisecond's worth, after which the connection looks whether its
# turn is over.
RUN_MAX_BYTES = 64 * 1024
# After a request that fitted a lane but had to go the general way, this many follow it without being tried: those to a
# compacted topic never are plain.
_REST = 63


class PendingRun(Pending[Any]):
    """The answers to a run whose records are written and not yet confirmed, in their order."""

    __slots__ = ("_errors", "_measurement", "_taken", "_timer", "_unconfirmed", "answers")

    def __init__(
        self,
        taken: list[Taken],
        answers: list[Bytes],
        waits: dict[Partition, int],
        timeout_ms: int,
        measurement: Measurement | None = None,
    ) -> None:
        """`answers` are those that are given if all goes well, `waits` the end offsets to wait for."""
        super().__init__()
        self.answers = answers
        self._taken = taken
        self._measurement = measurement
        self._errors: dict[Partition, KafkaError] = {}
        self._timer: TimerHandle = get_running_loop().call_later(max(0, timeout_ms) / 1000, self._on_timeout)
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
            more_bytes, codes = 0, []
            for number, (correlation_id, lane, index, partition, _count) in enumerate(self._taken):
                if partition in self._errors:
                    more_bytes -= len(self.answers[number])
                    self.answers[number] = lane.encode_error(correlation_id, index, self._errors[partition])
                    more_bytes += len(self.answers[number])
                    codes.append(int(self._errors[partition].code))
            if (meter := self._taken[0][1].meter) is not None:
                meter.note_answers(more_bytes, codes)  # Beside what was noted of those that went well.
        if self._measurement is not None:
            self._measurement.note_answered(self.answers, NO_ERRORS)
        self.complete(self.answers)

    def encode(self, answers: list[Bytes]) -> bytes:
        return b"".join(answers)

    def abandon(self) -> None:
        super().abandon()
        self._timer.cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        for partition, tell in self._unconfirmed.items():
            partition.produces.discard(tell)
        self._unconfirmed.clear()


def may_be_used() -> bool:
    """Whether Produce has no step that this way would leave out."""
    api = CATALOGUE[ApiKey.PRODUCE]
    return not api.before and not api.after


class Express:
    """The lanes of one connection."""

    __slots__ = (
        "_commits",
        "_credit",
        "_keep",
        "_lane",
        "_lanes",
        "_number",
        "_origin",
        "_outbox",
        "_services",
        "_slots",
    )

    def __init__(
        self,
        services: Services,
        outbox: Outbox,
        slots: Slots,
        keep: Keep,
        origin: ThrottledClient,
    ) -> None:
        """`slots` are the answers that go before; while there are some, or if the run has to wait, its own are given to
        `keep`."""
        self._services = services
        self._outbox = outbox
        self._slots = slots
        self._keep = keep
        self._origin = origin
        self._lane: Lane | None = None  # The one used last.
        # By version and prefix, in the order in which they were learned.
        self._lanes: dict[tuple[int, bytes], Lane] = {}
        self._number = services.lanes.number  # With which they were learned.
        self._credit = _CREDIT_MAX
        self._commits: Commits | None = None  # Until there is one.

    def take(self, buffer: Buffer, view: memoryview, position: int, end: int) -> int:
        """Serves requests from `position` on, as long as they fit, up to a bound; gives the position behind them."""
        turn_end = min(end, position + RUN_MAX_BYTES) - _HEAD_BYTES
        if position > turn_end:
            return position
        key_and_version = _unpack_head(buffer, position)[1]
        if not _VERSION_MIN <= key_and_version <= _VERSION_MAX:  # Most requests of followers and consumers.
            if key_and_version >> 16 == ApiKey.OFFSET_COMMIT:
                return self._take_commits(buffer, view, position, end)
            return position
        if self._number != self._services.lanes.number:
            self._number, self._lane = self._services.lanes.number, None
            self._lanes.clear()
        replicas = self._services.replicas
        # Past its lease a broker asks more before it answers: the general way.
        if replicas.flusher.is_saturated or (replicas.lease.ends_ms != inf and replicas.lease.is_past):
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
            if self._origin.is_muted:
                return position
        return position

    def _take_commits(self, buffer: Buffer, view: memoryview, position: int, end: int) -> int:
        if self._commits is None:
            # Loaded by the first commit: a start does without the messages of groups.
            from tailrace.broker.serving.commits.taking import Commits

            self._commits = Commits(self._services, self._outbox, self._slots, self._keep, self._origin)
        return self._commits.take(buffer, view, position, end)

    def _find_lane(self, buffer: Buffer, version: int, start: int) -> Lane | None:
        lane = self._lane
        if lane is not None and lane.version == version and buffer.startswith(lane.prefix, start):
            return lane
        return self._change_lane(buffer, version, start)

    def _change_lane(self, buffer: Buffer, version: int, start: int) -> Lane | None:
        lane = self._lanes.get((version, bytes(buffer[start : prefix_end(buffer, version, start)])))
        if lane is not None:
            self._lane = lane
        return lane

    def _run(self, lane: Lane, buffer: Buffer, view: memoryview, position: int, end: int) -> int:
        version, prefix, partitions = lane.version, lane.prefix, lane.partitions
        prefix_size, is_flexible = len(prefix), lane.is_flexible
        clock = self._services.ports.clock
        now_ms = clock.wall_ms()
        meter = lane.meter
        measurement = None if meter is None else meter.sample(clock)
        toll, max_bytes = None, RUN_MAX_BYTES
        if self._services.meters.number:
            toll = RunToll(self._services.meters, self._origin, lane.terms[2])
            max_bytes = RUN_MAX_BYTES if toll.takes_several else 1
        groups: dict[Partition, list[PlainBatch]] = {}
        taken: list[Taken] = []
        group_bytes = 0
        while end - position >= _HEAD_BYTES and group_bytes < max_bytes:
            size, key_and_version, correlation_id = _unpack_head(buffer, position)
            frame_end = position + 4 + size
            start = position + _HEAD_BYTES + prefix_size
            if key_and_version != version or buffer[position + _HEAD_BYTES : start] != prefix:
                other = self._change_lane(buffer, key_and_version, position + _HEAD_BYTES)
                if other is None or other.rest or other.terms != lane.terms:
                    break
                lane = other
                version, prefix, partitions = lane.version, lane.prefix, lane.partitions
                prefix_size, is_flexible = len(prefix), lane.is_flexible
                continue
            if not start + 8 < frame_end <= end:
                break
            if is_flexible:
                (index,) = _unpack_int(buffer, start)
                start = records_start(buffer, start + 4, frame_end)
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
            group, header = groups.get(partition), batch[4]
            if header is not None and not (
                follows(header, group[-1][4]) if group else self._may_begin(lane, partition, header, records)
            ):
                break
            if group is None:
                groups[partition] = [batch]
            else:
                group.append(batch)
            taken.append((correlation_id, lane, index, partition, batch[2] + 1))
            group_bytes += size
            position = frame_end
        if taken:
            self._credit = min(_CREDIT_MAX, self._credit + len(taken))
            if meter is not None:
                meter.note_run(len(taken), group_bytes)
            if toll is not None:
                toll.received_bytes = group_bytes
            self._write(groups, taken, measurement, toll)
        return position

    def _may_begin(self, lane: Lane, partition: Partition, header: BatchHeader, records: memoryview) -> bool:
        """Whether the log would take this batch from its producer now."""
        refused_batches, producers = self._services.refused_batches, partition.log.producers
        try:
            if refused_batches:
                refused_batches.check_first(lane.place(partition), records, producers.states)
            return producers.check(header, origin=_CLIENT) is None
        except KafkaError:
            return False

    def _write(
        self,
        groups: dict[Partition, list[PlainBatch]],
        taken: list[Taken],
        measurement: Measurement | None,
        toll: RunToll | None,
    ) -> None:
        first = taken[0][1]  # All have the same terms.
        acks, timeout_ms, _client_id = first.terms
        offsets: dict[Partition, int] = {}
        failures: dict[Partition, tuple[KafkaError, Iterator[PlainBatch]]] = {}
        waits: dict[Partition, int] = {}
        for partition, batches in groups.items():
            try:
                first_offset = offsets[partition] = partition.append_plain(batches)
            except KafkaError as error:
                failures[partition] = error, iter(batches)
                continue
            end_offset = partition.log.log_end_offset
            # Most often there is no follower, and nothing to ask.
            if partition.high_watermark < end_offset and partition.must_wait(
                AppendResult(first_offset, end_offset, -1), acks
            ):
                waits[partition] = end_offset
        throttle_ms = toll.settle() if toll is not None else 0
        answers: list[Bytes] = []
        errors: list[int] = []
        for correlation_id, lane, index, partition, count in taken:
            if failures and partition in failures:
                failure, left = failures[partition]
                failure = self._services.refused_batches.judge(lane.place(partition), next(left)[0], failure)
                answers.append(lane.encode_error(correlation_id, index, failure))
                errors.append(int(failure.code))
                continue
            base_offset = offsets[partition]
            offsets[partition] = base_offset + count
            start = (partition.tier or partition.log).log_start_offset
            tail = lane.throttled_tail(throttle_ms) if throttle_ms else lane.tail
            answers.append(
                lane.pack(lane.answer_size, correlation_id, lane.head, index, 0, base_offset, -1, start, tail)
            )
        if first.meter is not None:
            first.meter.note_answers(sum(map(len, answers)) - 4 * len(answers), errors)
            if measurement is not None:
                if waits:
                    measurement.note_parked()
                measurement.note_answered(answers, NO_ERRORS)  # Noted again by those that wait.
        if waits:
            self._keep(answers, PendingRun(taken, answers, waits, timeout_ms, measurement), measurement)
        elif self._slots.count:
            self._keep(answers, None, measurement)
        else:
            self._outbox.put_all(answers, measurement)

    def _find_partition(self, lane: Lane, index: int) -> Partition | None:
        partition = self._services.replicas.partitions.get((lane.topic, index))
        if partition is None:
            return None
        if lane.version >= FIRST_VERSION_WITH_TOPIC_IDS and partition.topic_id != lane.topic_data.topic_id:
            return None  # Another topic has the name by now.
        lane.partitions[index] = partition
        return partition

    def _learn(self, frame: memoryview, version: int) -> Lane | None:
        """A lane for requests like this one, if it is of the kind that has one."""
        if self._credit <= 0 or self._services.request_log.is_on:
            return None
        self._credit -= 1
        try:
            header, position = decode_request_header(frame)
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
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name = self._services.image.topic_names.get(Uuid(topic.topic_id), "")
        if not records or request.acks not in (1, -1) or name in INTERNAL_TOPICS or not name:
            return None
        access = self._services.access
        if access is not None and not access.may_have_lane(self._origin, name):
            return None
        start, end = _HEAD_BYTES - 4, index_position(version, len(frame), len(records))
        if prefix_end(frame, version, start) != end:
            return None
        lane = Lane(version, bytes(frame[start:end]), name, request, client_id=header.client_id or "")
        meters = self._services.request_meters
        lane.meter = None if meters is None else meters.of(ApiKey.PRODUCE, version)
        self._lane = self._lanes[version, lane.prefix] = lane
        if len(self._lanes) > _LANES_MAX:
            del self._lanes[next(iter(self._lanes))]
        return lane
