"""Dead letters on their way to the topic that a group names for them, by the rules of Kafka 4.4 (KIP-1191).

The name of the topic has to begin with errors.deadletterqueue.topic.name.prefix, and the topic has to allow it
(errors.deadletterqueue.group.enable): else who may write to one topic could write to any. It is created if the cluster
says so. Letters go to the leader of their partition with acks=all, in batches that the topic takes; what a copied
record makes too large goes without the copy.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tailrace.controller.effective import group_config, topic_config
from tailrace.coordinator.share_partition.dead_letter import Source, dead_letter, destination, size_estimate
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.replica.partition import ACKS_ALL
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.payload import Record
from tailrace.wire.records import build_batch, iterate_headers, iterate_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.node import Node
    from tailrace.broker.shares.tally import Tally
    from tailrace.controller.image import TopicImage
    from tailrace.coordinator.share_partition.delivery import Dead
    from tailrace.replica.partition import Partition

_log = events.logger("shares")

_CHANNEL = "dead letters"
_INTERNAL_PREFIX = "__"
# Made in a row: about a millisecond.
_LETTERS_PER_BATCH = 100
_READ_BYTES = 1 << 20
_READ_UNCOMMITTED = 0
_BATCH_OVERHEAD_BYTES = 100
_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class DeadLetters:
    """Those of one share-partition."""

    def __init__(self, node: Node, partition: Partition, group_id: str, tally: Tally) -> None:
        self._node = node
        self._tally = tally
        self._partition = partition
        topic, index = partition.topic_partition
        self._source = Source(topic, index, group_id)

    async def write(self, dead: Dead) -> None:
        """Of each of the records a letter, or more than one if it fails in their midst. Raises KafkaError."""
        topic = await self._find_topic()
        config = group_config(self._node.config, self._node.image, self._source.group_id)
        delivery = dead.delivery
        for first in range(delivery.first, delivery.last + 1, _LETTERS_PER_BATCH):
            last = min(first + _LETTERS_PER_BATCH - 1, delivery.last)
            copies: Mapping[int, Record | None] = dict.fromkeys(range(first, last + 1))
            if config.errors_deadletterqueue_copy_record_enable:
                copies = await self._read(first, last)
            await self._write(topic, dead, copies)

    # ---- where to

    async def _find_topic(self) -> TopicImage:
        node, group_id = self._node, self._source.group_id
        name = group_config(node.config, node.image, group_id).errors_deadletterqueue_topic_name
        prefix = node.config.errors_deadletterqueue_topic_name_prefix
        if not name or name.startswith(_INTERNAL_PREFIX) or not name.startswith(prefix):
            raise _refused(
                f"errors.deadletterqueue.topic.name of group {group_id} is {name!r}: it has to begin with {prefix!r} "
                f"(errors.deadletterqueue.topic.name.prefix), and must not be that of an internal topic."
            )
        if name not in node.image.topics:
            if not node.config.errors_deadletterqueue_auto_create_topics_enable:
                raise _refused(
                    f"{name}, which group {group_id} names for its dead letters, does not exist: create it with "
                    f"errors.deadletterqueue.group.enable=true, or set "
                    f"errors.deadletterqueue.auto.create.topics.enable=true on the brokers."
                )
            await self._create(name)
        topic = node.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not there yet")
        if not topic_config(node.config, node.image, name).errors_deadletterqueue_group_enable:
            raise _refused(
                f"{name}, which group {group_id} names for its dead letters, does not take them: set its "
                f"errors.deadletterqueue.group.enable=true."
            )
        return topic

    async def _create(self, name: str) -> None:
        from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse

        # The time of a letter is the one at which it was written.
        settings = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
        setting = CreateTopicsRequest.CreatableTopicConfig
        wanted = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[setting(name=each, value=value) for each, value in settings.items()],
        )
        response = await self._node.forwarding.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        answer = response.topics[0]
        if answer.error_code not in _DONE:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, f"{name} cannot be created for dead letters: {answer.error_message or code.name}")
        await self._node.wait_topics([name])

    # ---- what

    async def _read(self, first: int, last: int) -> dict[int, Record | None]:
        """The records that there are. What retention has taken meanwhile has a letter without a copy; where the log has
        an offset without a record there is nothing to tell of. Raises KafkaError."""
        partition, background = self._partition, self._node.ports.background
        offset = first
        found: dict[int, Record | None] = {}
        limit = self._node.config.max_decompressed_bytes
        while offset <= last:
            start = min(partition.log_start_offset, last + 1)
            if offset < start:
                found |= dict.fromkeys(range(offset, start))
                offset = start
                continue
            data = await (self._read_cold if offset < partition.log.log_start_offset else self._read_here)(offset)
            if not data and offset < partition.log_start_offset:
                continue
            if not data:
                # As a store that may still answer says it. Whoever took it for the end would leave letters out.
                name = partition.topic_partition
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} cannot be read at offset {offset} yet")
            try:
                found |= await background.run(partial(_pick, data, first, last, limit))
            except KafkaError as error:
                # It may be why nobody could make anything of them.
                _log.warning("records have dead letters without copies", partition=repr(partition), cause=error.message)
                return dict.fromkeys(range(first, last + 1))
            offset = max(header.next_offset for _, header in iterate_headers(data, allow_partial=True))
        return found

    async def _read_here(self, offset: int) -> bytes | bytearray:
        slice_ = self._partition.read(offset, _READ_BYTES, isolation_level=_READ_UNCOMMITTED, at_least_one_batch=True)
        try:
            return b"" if slice_ is None else await self._node.ports.background.run(slice_.read)
        except (StorageError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._partition!r} cannot be read: {error}") from error

    async def _read_cold(self, offset: int) -> bytes | bytearray:
        """What lies in remote storage alone."""
        from tailrace.broker.tier.cold import read_cold

        tier: object = self._partition.tier
        records = await read_cold(tier, offset, _READ_BYTES, wants_aborted=False)  # type: ignore[arg-type]
        return records.data

    async def _write(self, topic: TopicImage, dead: Dead, copies: Mapping[int, Record | None]) -> None:
        limit = topic_config(self._node.config, self._node.image, topic.name).max_message_bytes
        letters: list[Record] = []
        size = _BATCH_OVERHEAD_BYTES
        for offset, record in sorted(copies.items()):
            copy = record
            if copy is not None and _BATCH_OVERHEAD_BYTES + size_estimate(self._source, copy) > limit:
                copy = None
            more = size_estimate(self._source, copy)
            if letters and size + more > limit:
                await self._append(topic, letters)
                letters, size = [], _BATCH_OVERHEAD_BYTES
            letter = dead_letter(
                self._source,
                offset,
                delivery_count=dead.delivery.count,
                is_rejected=dead.is_rejected,
                now_ms=int(self._node.ports.clock.wall_ms()),
                copy=copy,
            )
            letters.append(letter._replace(offset=len(letters)))
            size += more
        if letters:
            await self._append(topic, letters)

    async def _append(self, topic: TopicImage, letters: list[Record]) -> None:
        index = destination(self._source, len(topic.partitions))
        batch = build_batch(letters)
        try:
            async with asyncio.timeout(self._node.config.share_coordinator_write_timeout_ms / 1000):
                leader = topic.partitions[index].leader
                if leader == self._node.node_id:
                    await self._append_here(topic.name, index, batch)
                else:
                    await self._append_there(topic, index, leader, batch)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{topic.name}-{index} has not confirmed it") from None
        self._tally.written += len(letters)

    async def _append_here(self, name: str, index: int, batch: bytes) -> None:
        partition = self._node.replicas.find_to_write(name, index)
        result = partition.append(memoryview(bytearray(batch)), required_acks=ACKS_ALL)
        confirmed: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def tell(error: KafkaError | None) -> None:
            if not confirmed.done():
                confirmed.set_result(error)

        partition.wait_for_high_watermark(result.next_offset, tell)
        error = await confirmed
        if error is not None:
            raise error

    async def _append_there(self, topic: TopicImage, index: int, leader: int, batch: bytes) -> None:
        if leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{index} has no leader")
        data = ProduceRequest.PartitionProduceData(index=index, records=batch)
        told = ProduceRequest.TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])
        timeout_ms = min(self._node.config.share_coordinator_write_timeout_ms, self._node.config.request_timeout_ms)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=[told])
        response = await self._node.call_broker(
            leader, request, ProduceResponse, channel=_CHANNEL, timeout_ms=timeout_ms
        )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, f"{topic.name}-{index} refuses dead letters: {answer.error_message or code.name}")


def _pick(data: bytes | bytearray, first: int, last: int, max_decompressed_bytes: int) -> dict[int, Record | None]:
    picked: dict[int, Record | None] = {}
    for position, header in iterate_headers(data, allow_partial=True):
        if header.is_control or header.last_offset < first or header.base_offset > last:
            continue
        batch = memoryview(data)[position : position + header.size_bytes]
        for record in iterate_records(batch, max_decompressed_bytes=max_decompressed_bytes):
            if first <= record.offset <= last:
                picked[record.offset] = record
    return picked


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
