"""Offsets of partitions: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

ListOffsets looks up an offset by time or by one of the special times below. Version notes: 4 adds leader epochs
(KIP-320), 5 OFFSET_NOT_AVAILABLE (KIP-207), 7 the largest timestamp (KIP-734), 8 the earliest local offset (KIP-405),
9 the latest tiered offset (KIP-1005), 11 the earliest pending upload (KIP-1023). Without remote storage the local log
is all there is; with it, what lies in the store is looked up there.

DeleteRecords moves the start of a log up to an offset or, with -1, to the high watermark, and waits
until the followers in sync have done so too.
"""

from __future__ import annotations

from asyncio import gather, get_running_loop, sleep
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import INTERNAL_TOPICS
from tailrace.replica.leading.deletion import delete_records
from tailrace.replica.repair.failures import storage_failure
from tailrace.wire.apis.data import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.replica.partition import Partition

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
# The first version that knows each of the special times.
_SPECIAL_SINCE = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
_CONSUMER = -1
# How often it is looked whether followers have taken a new log start. They hear of it within replica.fetch.wait.max.ms.
_LOOK_SECONDS = 0.01

OffsetAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochAnswer = OffsetForLeaderEpochResponse.EpochEndOffset
DeleteAnswer = DeleteRecordsResponse.DeleteRecordsPartitionResult


class _Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


_NOTHING = _Found(-1, -1, -1)


def handle_list_offsets(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    if services.replicas.owed:
        owed = services.replicas.owed.among(
            (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
        )
        if owed:
            return _list_once_made(services, context, request, owed)
    response, remote = ListOffsetsResponse(), _RemoteLookups(services)
    asked_for = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    for topic in request.topics:
        answers: list[OffsetAnswer] = []
        for asked in topic.partitions:
            answer = OffsetAnswer(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if asked_for[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition stands in the request more than once")
                partition = _find(services, request.replica_id, topic.name, asked.partition_index)
                partition.check_leader(asked.current_leader_epoch)
                if partition.tier is not None and remote.begin(partition, asked, answer, context, request):
                    continue
                _fill(answer, _look_up(partition, asked.timestamp, context.api_version, request))
            except KafkaError as error:
                answer.error_code = int(services.replicas.lease.soften(error).code)
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return remote.finish(response) if remote.waiting else response


async def _list_once_made(
    services: Services, context: RequestContext, request: ListOffsetsRequest, owed: list[tuple[str, int]]
) -> ListOffsetsResponse:
    await services.replicas.owed.make(owed)
    answer = handle_list_offsets(services, context, request)
    return answer if isinstance(answer, ListOffsetsResponse) else await answer


def _fill(answer: OffsetAnswer, found: tuple[int, int, int]) -> None:
    answer.timestamp, answer.offset, answer.leader_epoch = found


class _RemoteLookups:
    """Those of one request that ask the store (`broker.tier.lookups`)."""

    def __init__(self, services: Services) -> None:
        self.waiting: list[Coroutine[Any, Any, None]] = []
        self._services = services

    def begin(
        self,
        partition: Partition,
        asked: ListOffsetsRequest.ListOffsetsPartition,
        answer: OffsetAnswer,
        context: RequestContext,
        request: ListOffsetsRequest,
    ) -> bool:
        """Whether it is answered, or will be. Raises KafkaError."""
        from tailrace.broker.tier.lookups import find_special, look_up
        from tailrace.broker.tier.parts import TieredLog

        part = partition.tier
        assert isinstance(part, TieredLog), "there is no other"
        local = _look_up(partition, asked.timestamp, context.api_version, request)  # It may be refused.
        if asked.timestamp == _LATEST:
            return False
        found = find_special(part, asked.timestamp)
        if found is not None:
            _fill(answer, found)
            return True

        async def finish() -> None:
            try:
                _fill(answer, await look_up(part, asked.timestamp, local_timestamp=local.timestamp) or local)
            except KafkaError as error:
                answer.error_code = int(self._services.replicas.lease.soften(error).code)

        self.waiting.append(finish())
        return True

    async def finish(self, response: ListOffsetsResponse) -> ListOffsetsResponse:
        await gather(*self.waiting)
        return response


def _find(services: Services, replica_id: int, topic: str, index: int) -> Partition:
    """Followers are answered past the lease too."""
    return (services.replicas.find if replica_id <= _CONSUMER else services.replicas.find_any)(topic, index)


def _look_up(partition: Partition, timestamp: int, version: int, request: ListOffsetsRequest) -> _Found:
    if timestamp < 0 and version < _SPECIAL_SINCE.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {version} knows no timestamp {timestamp}")
    log = partition.log
    is_consumer = request.replica_id == _CONSUMER
    end_offset = partition.readable_end(request.isolation_level) if is_consumer else log.log_end_offset
    if (
        is_consumer
        and partition.high_watermark < partition.leader_epoch_start_offset
        and timestamp not in (_EARLIEST, _EARLIEST_LOCAL)
    ):
        # A new leader does not know yet how far its predecessor had confirmed records (KIP-207).
        knows = version >= _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE if knows else ErrorCode.LEADER_NOT_AVAILABLE,
            f"{partition.topic_partition} has a new leader whose high watermark is still catching up",
        )
    if timestamp == _LATEST:
        # A mirror has the epochs of its source alone: its own would be unknown to whoever asks where it ended.
        return _Found(-1, end_offset, log.epochs.latest if partition.is_mirror else partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return _Found(-1, log.log_start_offset, log.epochs.epoch_for(log.log_start_offset))
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    try:
        if timestamp == _MAX_TIMESTAMP:
            found = log.max_timestamp_offset(end_offset=end_offset)
        else:
            found = log.offset_by_timestamp(timestamp, end_offset=end_offset)
    except StorageError as error:
        raise storage_failure(log, error) from error
    return _NOTHING if found is None else _Found(*found)


def handle_offset_for_leader_epoch(
    services: Services, _context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers: list[EpochAnswer] = []
        for asked in topic.partitions:
            answer = EpochAnswer(partition=asked.partition)
            answers.append(answer)
            try:
                partition = _find(services, request.replica_id, topic.topic, asked.partition)
                partition.check_leader(asked.current_leader_epoch)
                log, is_consumer = partition.log, request.replica_id <= _CONSUMER
                end_offset = _end_for_consumer(services, partition, asked) if is_consumer else log.log_end_offset
                answer.leader_epoch, answer.end_offset = log.epochs.end_offset_for(asked.leader_epoch, end_offset)
            except KafkaError as error:
                answer.error_code = int(error.code)
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
        )
    return response


def _end_for_consumer(
    services: Services, partition: Partition, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> int:
    """A consumer does not learn of more than it may read. But past the lease another leader may have confirmed more
    than this one knows to be: no more of this epoch than is here, and it knows the later ones alone."""
    if not services.replicas.lease.is_past:
        return partition.high_watermark
    if asked.leader_epoch > partition.log.epochs.latest:
        raise partition.not_leader()
    return partition.log.log_end_offset


async def handle_delete_records(
    services: Services, _context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    deleted: list[tuple[Partition, DeleteAnswer]] = []
    for topic in request.topics:
        answers: list[DeleteAnswer] = []
        for asked in topic.partitions:
            answer = DeleteAnswer(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                if topic.name in INTERNAL_TOPICS:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic.name}"
                    )
                partition = services.replicas.find(topic.name, asked.partition_index)
                answer.low_watermark = delete_records(partition, asked.offset)
                deleted.append((partition, answer))
            except KafkaError as error:
                answer.error_code = int(error.code)
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    # Before the answer: what a client was told to be deleted must not come back after a crash.
    try:
        await services.replicas.store_log_start_offsets()
        await _store_remote_starts(partition for partition, _ in deleted)
    except KafkaError as error:
        for answer in (each for topic in response.topics for each in topic.partitions):
            answer.error_code = answer.error_code or int(error.code)
    await _wait_followers(deleted, request.timeout_ms)
    return response


async def _store_remote_starts(partitions: Iterable[Partition]) -> None:
    """Where logs begin in remote storage. Raises KafkaError."""
    for partition in partitions:
        if partition.tier is not None:
            await partition.tier.store_start()
            return  # All of them are stored together.


async def _wait_followers(deleted: list[tuple[Partition, DeleteAnswer]], timeout_ms: int) -> None:
    """The next leader must not bring back what a client was told to be deleted."""
    loop = get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    for partition, answer in deleted:
        wanted = answer.low_watermark
        while True:
            answer.low_watermark = _low_watermark(partition)
            if answer.low_watermark >= wanted or not partition.is_leader or loop.time() >= deadline:
                break
            await sleep(_LOOK_SECONDS)
        if answer.low_watermark < wanted and not answer.error_code:
            code = ErrorCode.REQUEST_TIMED_OUT if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer.error_code = int(code)


def _low_watermark(partition: Partition) -> int:
    """What no replica in sync has any more."""
    in_sync = [each.log_start_offset for each in partition.followers.values() if each.node_id in partition.isr]
    return min([partition.log_start_offset, *in_sync])
