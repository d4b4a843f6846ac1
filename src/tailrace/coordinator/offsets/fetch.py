"""OffsetFetch: where a group's consumers go on. One group an op.

A partition without an offset is told as -1, and so is every partition of a group that does not exist. With
require_stable a partition that an open transaction has committed is told as UNSTABLE_OFFSET_COMMIT, so that the client
asks again (KIP-447).

Version notes: from 8 on groups are listed, though an op is asked about one; from 9 on a member tells its id and epoch,
which the group checks; from 10 on topics are named by id.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.offsets.store import CommittedOffset, read_offset
from tailrace.coordinator.op import Call, Caller, Result, Steps
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.groups import OffsetFetchRequest, OffsetFetchResponse

_Topic = OffsetFetchResponse.OffsetFetchResponseTopics
_Partition = OffsetFetchResponse.OffsetFetchResponsePartitions

_AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_OFFSET = -1
# Offsets, each in about three microseconds.
_READS_PER_STEP = 150


def fetch_offsets(state: GroupState, call: Call, caller: Caller, request: OffsetFetchRequest) -> Result:
    asked = request.groups[0] if caller.api_version >= FIRST_VERSION_WITH_GROUPS else _as_group(request)
    group = find_group(state, asked.group_id)
    if group is not None:
        group.check_offset_fetch(member_id=asked.member_id, member_epoch=asked.member_epoch)
    steps = _fetch(state, call, caller, asked, require_stable=request.require_stable)
    try:
        next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    # Each caller has work of its own.
    state.work[f"offsets.fetch {id(caller)}", asked.group_id] = lambda _: steps
    return Result()


def _fetch(state: GroupState, call: Call, caller: Caller, asked: _AskedGroup, *, require_stable: bool) -> Steps:
    """Steps only if there is much to read. What is committed meanwhile may be told or not."""
    by_id = caller.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    reader = _Reader(state, asked.group_id, require_stable=require_stable)
    topics = asked.topics
    if topics is None:
        topics = _all_topics(reader, call, by_id=by_id)
    answers = []
    reads = 0
    for topic in topics:
        answer = _Topic(name=topic.name, topic_id=topic.topic_id)
        answers.append(answer)
        name = call.image.topic_names.get(Uuid(topic.topic_id)) if by_id else topic.name
        for start in range(0, len(topic.partition_indexes), _READS_PER_STEP):
            some = topic.partition_indexes[start : start + _READS_PER_STEP]
            if name is None:
                answer.partitions += [_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in some]
            else:
                answer.partitions += reader.read(name, Uuid(topic.topic_id), some)
            reads += len(some)
            if reads >= _READS_PER_STEP:
                reads = 0
                yield
                if caller.is_over:
                    return Result()
    if caller.api_version < FIRST_VERSION_WITH_GROUPS:
        return Result(answers=((caller, OffsetFetchResponse(topics=[_in_old_form(topic) for topic in answers])),))
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, topics=answers)
    return Result(answers=((caller, OffsetFetchResponse(groups=[group])),))


def _all_topics(reader: _Reader, call: Call, *, by_id: bool) -> list[_AskedTopic]:
    """Those with offsets; by id, those that still exist."""
    asked = []
    for name, partitions in reader.topics.items():
        known = call.image.topics.get(name)
        if not by_id:
            asked.append(_AskedTopic(name=name, partition_indexes=list(partitions)))
        elif known is not None:
            asked.append(_AskedTopic(name=name, topic_id=known.id, partition_indexes=list(partitions)))
    return asked


def _as_group(request: OffsetFetchRequest) -> _AskedGroup:
    topics = None
    if request.topics is not None:
        topics = [_AskedTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics]
    return _AskedGroup(group_id=request.group_id, topics=topics)


def _in_old_form(topic: _Topic) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    return OffsetFetchResponse.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )


class _Reader:
    """The offsets of one group."""

    def __init__(self, state: GroupState, group_id: str, *, require_stable: bool) -> None:
        self.topics = state.offsets.topics(group_id)
        # Most groups have no open transaction, and then nothing is unstable.
        self._unstable = frozenset(state.offsets.pending(group_id)) if require_stable else frozenset()

    def read(self, topic: str, topic_id: Uuid, indexes: Sequence[int]) -> list[_Partition]:
        stored = self.topics.get(topic, {})
        answers = []
        for index in indexes:
            value = stored.get(index)
            if (topic, index) in self._unstable:
                answers.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif value is None or _is_of_another_topic(committed := read_offset(value), topic_id):
                answers.append(_no_offset(index))
            else:
                answers.append(
                    _Partition(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                    )
                )
        return answers


def _is_of_another_topic(committed: CommittedOffset, topic_id: Uuid) -> bool:
    """The topic was deleted and made again since; only who asks by id can tell."""
    return ZERO_UUID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id


def _no_offset(index: int, error: ErrorCode = ErrorCode.NONE) -> _Partition:
    return _Partition(partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=error)
