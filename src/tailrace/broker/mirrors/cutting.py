"""What a mirror has and its source does not, cut by an operator's decision (`reverse`, `cut`).

    save   the records are written to the topic NAME.cut of this cluster, acknowledged by all in sync; what was aborted
           is left out, and so are markers
    ask    the controller begins a leader epoch in which this leader is alone in sync, and cuts
           (controller.mirrors.reversing, replica.leading.mirrors)

Whoever dies between two of these begins anew: a record may be saved twice, and is never cut unsaved.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.broker.mirrors.saved import saved_batches
from tailrace.client.connection import error_code
from tailrace.controller.image import MirrorState
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.leading.mirrors import Cut
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse

if TYPE_CHECKING:
    from tailrace.broker.mirrors.pulled import Pulled
    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.replica.partition import Partition

_log = events.logger("mirror")

SUFFIX = ".cut"
_PIECE_BYTES = 1 << 20
_TIMEOUT_MS = 30_000
_ACKS_ALL = -1
# What was cut is kept until somebody deletes it.
_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "104857600"}


def is_to_be_cut(room: LinkRoom, pulled: Pulled) -> bool:
    topic = room.node.image.topics.get(pulled.partition.topic_partition.topic)
    return topic is not None and topic.mirror is not None and topic.mirror.state is MirrorState.CUTTING


async def cut_mirror(room: LinkRoom, partition: Partition, offset: int) -> None:
    """Raises KafkaError; then nothing was cut, and it can be tried again."""
    if partition.tier is not None:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"it has remote storage, and what lies there from offset {offset} on cannot be cut. Delete the topic here "
            "to mirror it anew",
        )
    epoch, log = partition.leader_epoch, partition.log
    end_offset, count = log.log_end_offset, 0
    first_offset = max(offset, log.log_start_offset)
    if first_offset < end_offset:
        count = await _save(room, partition, first_offset, end_offset)
    if partition.leader_epoch != epoch or not partition.is_leader:
        raise partition.not_leader()
    partition.cut_to = Cut(epoch + 1, offset)
    _log.warning(
        "records of a mirror that its source does not have are saved, and will be cut",
        partition=partition.topic_partition,
        offset=offset,
        end_offset=end_offset,
        records=count,
        topic=partition.topic_partition.topic + SUFFIX,
    )
    await _store_end(room, partition)
    request = AllowTruncationRequest(
        broker_id=room.node.node_id,
        broker_epoch=room.node.broker_epoch(),
        topic_id=partition.topic_id,
        partition_index=partition.topic_partition.partition,
        leader_epoch=epoch,
    )
    answer = await room.node.forwarding.ask(request, AllowTruncationResponse, channel="mirrors")
    if answer.error_code:
        partition.cut_to = None
        code = error_code(answer.error_code)
        raise KafkaError(code, f"the controller does not let it be cut: {code.name}")


async def _store_end(room: LinkRoom, partition: Partition) -> None:
    """Else a start after the cut would take the log for damaged, for it ends before what was confirmed."""
    replicas = room.node.replicas
    for directory in replicas.directories.online:
        if partition.topic_partition in directory.logs:
            work = replicas.begin_high_watermark_checkpoint(directory)
            try:
                await room.node.ports.background.run(work)
            except OSError as error:
                why = f"the high watermarks cannot be stored, and nothing is cut before: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from None


async def _save(room: LinkRoom, partition: Partition, offset: int, end_offset: int) -> int:
    """Gives how many records."""
    name, index = partition.topic_partition
    saved_in, log, count = name + SUFFIX, partition.log, 0
    await _ensure_topic(room, saved_in, len(room.node.image.topics[name].partitions))
    while offset < end_offset:
        piece = log.read(offset, _PIECE_BYTES, end_offset=end_offset)
        if piece is None or not piece.size:
            if log.damaged_ranges:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"what is to be cut from {offset} on cannot be read")
            break  # A gap.
        aborted = log.files.find_aborted(piece, offset, end_offset=end_offset)
        data = await room.node.ports.background.run(piece.read)
        offset, batches = saved_batches(data, offset, aborted)
        for records, batch in batches:
            await _produce(room, saved_in, index, batch)
            count += records
    return count


async def _ensure_topic(room: LinkRoom, name: str, count: int) -> None:
    node = room.node
    topic = node.image.topics.get(name)
    if topic is None:
        settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in _SETTINGS.items()]
        asked = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=count, replication_factor=-1, configs=settings
        )
        answer = await node.forwarding.ask(CreateTopicsRequest(topics=[asked]), CreateTopicsResponse)
        code = error_code(answer.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code, f"{name}, for what is cut, cannot be made: {answer.topics[0].error_message}")
        await node.wait_topics([name])
        topic = node.image.topics.get(name)
    if topic is None or len(topic.partitions) < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{name}, where what is cut is saved, has fewer than {count} partitions: give it as many, or delete it",
        )


async def _produce(room: LinkRoom, topic: str, index: int, batch: bytes) -> None:
    node = room.node
    state = node.image.topics[topic].partitions[index]
    partition = node.replicas.partitions.get((topic, index))
    if partition is not None and partition.is_leader:
        result = partition.append(memoryview(bytearray(batch)), required_acks=_ACKS_ALL)
        await _wait_committed(partition, result.next_offset)
        return
    data = ProduceRequest.PartitionProduceData(index=index, records=batch)
    asked = ProduceRequest.TopicProduceData(name=topic, topic_id=node.image.topics[topic].id, partition_data=[data])
    request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=_TIMEOUT_MS, topic_data=[asked])
    answer = await node.call_broker(state.leader, request, ProduceResponse, channel="mirrors", timeout_ms=_TIMEOUT_MS)
    told = answer.responses[0].partition_responses[0]
    if told.error_code:
        code = error_code(told.error_code)
        raise KafkaError(code, f"what is to be cut is not saved in {topic}-{index}: {told.error_message or code.name}")


async def _wait_committed(partition: Partition, offset: int) -> None:
    told: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

    def tell(error: KafkaError | None) -> None:
        if not told.done():
            told.set_result(error)

    partition.wait_for_high_watermark(offset, tell)
    try:
        async with asyncio.timeout(_TIMEOUT_MS / 1000):
            failure = await told
    except TimeoutError:
        why = f"what is to be cut is not in sync in {partition.topic_partition} after {_TIMEOUT_MS / 1000:g} s"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from None
    finally:
        partition.produces.discard(tell)
    if failure is not None:
        raise failure
