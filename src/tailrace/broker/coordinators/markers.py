"""Transaction markers on their way to the leaders of their partitions, until the last one is committed there.

Markers of many transactions to one broker go in one request, and the next request waits for the answer: what gathers
meanwhile goes with it. What fails for a reason that passes is sent again, to whoever leads then. A partition whose
topic is gone needs none. A leader that has seen a later epoch of the producer or of its coordinator refuses for good:
then another coordinator has taken over, and the transaction is its business.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop, sleep, wait
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

from tailrace.log.validation import Origin
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, PartitionIndex, TopicPartition
from tailrace.wire.apis.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tailrace.wire.markers import Marker, build_marker

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.node import Node
    from tailrace.replica.partition import Partition

_log = events.logger("transactions")

WritableMarker = WriteTxnMarkersRequest.WritableTxnMarker
WriteMarkers = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
_REFUSED_FOR_GOOD = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# What the coordinator of transactions is told of one of groups that is not ready: what it knows, and tries again.
_NOT_READY = dict.fromkeys(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
_ACKS_ALL = -1
_CHANNEL = "markers"
# Between two tries of what failed: a new leader is elected within a second or two.
_PAUSE_SECONDS = 0.02
_PAUSE_MAX_SECONDS = 1.0
# Transactions in one request.
_MARKERS_PER_REQUEST = 1000
# Written in a row: about a millisecond.
_MARKERS_PER_TURN = 20
# Behind a request that is not answered wait the markers of all transactions with partitions there, though others may
# lead them by now. So a leader waits for less than the coordinator until markers are committed, and tells what is.
_CONFIRM_SECONDS = 2.0
_CALL_TIMEOUT_MS = 4000


class _Owed:
    """The markers of one transaction that are not written yet."""

    __slots__ = ("is_wanted", "left", "marker", "on_written", "parts_count", "pause_seconds")

    def __init__(
        self, marker: WritableMarker, on_written: Callable[[int, int], None], is_wanted: Callable[[], bool]
    ) -> None:
        self.marker = marker
        self.on_written = on_written
        self.is_wanted = is_wanted
        self.left = {
            TopicPartition(topic.name, PartitionIndex(index))
            for topic in marker.topics
            for index in topic.partition_indexes
        }
        self.parts_count = 0  # Those that are under way, one for each leader.
        self.pause_seconds = _PAUSE_SECONDS

    @property
    def key(self) -> tuple[int, int]:
        return self.marker.producer_id, self.marker.producer_epoch


class MarkerWriter:
    def __init__(self, node: Node, write_here: WriteMarkers) -> None:
        """`write_here` writes to the partitions that this broker leads."""
        self._node = node
        self._write_here = write_here
        # By broker: what waits for the request that is under way, and the task that sends.
        self._waiting: dict[int, list[tuple[_Owed, list[TopicPartition]]]] = {}
        self._tasks: set[Task[None]] = set()

    def write(
        self, marker: WritableMarker, on_written: Callable[[int, int], None], *, is_wanted: Callable[[], bool]
    ) -> None:
        """Tells, with producer id and epoch, once all of its markers are committed; never if it is not wanted any more
        or somebody else has taken over."""
        self._send(_Owed(marker, on_written, is_wanted))

    def _send(self, owed: _Owed) -> None:
        image = self._node.image
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in sorted(owed.left):
            topic = image.topics.get(each.topic)
            state = None if topic is None else topic.partitions.get(each.partition)
            if state is None or (topic is not None and topic.mirror is not None and topic.mirror.is_read_only):
                owed.left.discard(each)  # The topic was deleted, or takes nothing of ours.
            elif state.leader >= 0:
                by_leader.setdefault(state.leader, []).append(each)
        owed.parts_count = len(by_leader)
        for leader, partitions in by_leader.items():
            self._enqueue(leader, owed, partitions)
        if not by_leader:
            self._settle(owed)

    def _enqueue(self, leader: int, owed: _Owed, partitions: list[TopicPartition]) -> None:
        is_busy = leader in self._waiting
        self._waiting.setdefault(leader, []).append((owed, partitions))
        if not is_busy:
            task = get_running_loop().create_task(self._serve(leader), name=f"markers to {leader}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, leader: int) -> None:
        """One request after the other, as long as there is something to send."""
        try:
            while self._waiting[leader]:
                batch = self._waiting[leader][:_MARKERS_PER_REQUEST]
                del self._waiting[leader][:_MARKERS_PER_REQUEST]
                await self._write_batch(leader, [each for each in batch if each[0].is_wanted()])
        finally:
            del self._waiting[leader]

    async def _write_batch(self, leader: int, batch: list[tuple[_Owed, list[TopicPartition]]]) -> None:
        request = WriteTxnMarkersRequest(markers=[_part(owed.marker, partitions) for owed, partitions in batch])
        try:
            if leader == self._node.node_id:
                response = await self._write_here(request)
            else:
                response = await self._node.call_broker(
                    leader, request, WriteTxnMarkersResponse, channel=_CHANNEL, timeout_ms=_CALL_TIMEOUT_MS
                )
        except KafkaError as error:
            _log.debug("markers could not be sent", broker=leader, cause=error)
            response = WriteTxnMarkersResponse()
        except Exception as error:
            _log.error("markers could not be written", trace=True, broker=leader)
            self._node.judge_bug(error)
            response = WriteTxnMarkersResponse()
        for (owed, _), result in zip_longest(batch, response.markers[: len(batch)]):
            # What there is no result of is sent again.
            if result is None or self._take(owed, result):
                self._end_part(owed)

    def _take(self, owed: _Owed, result: WriteTxnMarkersResponse.WritableTxnMarkerResult) -> bool:
        """Whether it is still this coordinator's business."""
        for topic in result.topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    owed.left.discard(TopicPartition(topic.name, PartitionIndex(each.partition_index)))
                elif each.error_code in _REFUSED_FOR_GOOD:
                    _log.warning(
                        "a marker was refused: another coordinator has taken over",
                        partition=f"{topic.name}-{each.partition_index}",
                        producer_id=owed.marker.producer_id,
                        cause=ErrorCode(each.error_code).name,
                    )
                    return False
        return True

    def _end_part(self, owed: _Owed) -> None:
        owed.parts_count -= 1
        if owed.parts_count == 0:
            self._settle(owed)

    def _settle(self, owed: _Owed) -> None:
        if owed.left:
            self._send_later(owed)
        else:
            owed.on_written(*owed.key)

    def _send_later(self, owed: _Owed) -> None:
        def send() -> None:
            if owed.is_wanted():
                self._send(owed)

        get_running_loop().call_later(owed.pause_seconds, send)
        owed.pause_seconds = min(2 * owed.pause_seconds, _PAUSE_MAX_SECONDS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await wait(set(self._tasks))


def _part(marker: WritableMarker, partitions: list[TopicPartition]) -> WritableMarker:
    """For these partitions alone."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WritableMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.transaction_result,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


async def write_markers(
    node: Node, group_shard: Callable[[int], Shard], request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Into the partitions that this broker leads; each stands or falls alone. Answered once they are committed."""
    response = WriteTxnMarkersResponse()
    unconfirmed: list[Future[None]] = []
    written_count = 0
    for marker in request.markers:
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = []
            result.topics.append(
                WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=answers)
            )
            for index in topic.partition_indexes:
                answer = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=index)
                answers.append(answer)
                written_count += 1
                if written_count % _MARKERS_PER_TURN == 0:
                    await sleep(0)
                try:
                    partition, end_offset = _append(node, group_shard, topic.name, index, marker)
                except KafkaError as error:
                    code = node.replicas.lease.soften(error).code
                    answer.error_code = int(_NOT_READY.get(code, code))
                else:
                    unconfirmed += _confirmation(partition, end_offset, answer)
    if unconfirmed:
        _, late = await wait(unconfirmed, timeout=_CONFIRM_SECONDS)
        for future in late:
            future.cancel()
    return response


def _append(
    node: Node, group_shard: Callable[[int], Shard], topic: str, index: int, marker: WritableMarker
) -> tuple[Partition, int]:
    partition = node.replicas.find_to_write(topic, index)
    partition.check_leader()
    partition.log.producers.check_marker(
        marker.producer_id,
        marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    batch = build_marker(
        Marker(marker.transaction_result, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=node.ports.clock.wall_ms(),
    )
    view = memoryview(bytearray(batch))
    if topic == CONSUMER_OFFSETS_TOPIC:
        # The offsets that were committed with it count from here on: the machine of their groups is told.
        shard = group_shard(index)
        written = shard.write_marker(view, producer_id=marker.producer_id, is_commit=marker.transaction_result)
    else:
        written = partition.append(view, required_acks=_ACKS_ALL, origin=Origin.COORDINATOR)
    return partition, written.next_offset


def _confirmation(
    partition: Partition, end_offset: int, answer: WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
) -> list[Future[None]]:
    """Until the marker is committed; none if it is. Without an end in time the answer is REQUEST_TIMED_OUT."""
    if partition.high_watermark >= end_offset:
        return []
    future: Future[None] = get_running_loop().create_future()
    answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)

    def tell(error: KafkaError | None) -> None:
        answer.error_code = int(ErrorCode.NONE if error is None else error.code)
        if not future.done():
            future.set_result(None)

    partition.wait_for_high_watermark(end_offset, tell)
    future.add_done_callback(lambda _: partition.produces.discard(tell))
    return [future]
