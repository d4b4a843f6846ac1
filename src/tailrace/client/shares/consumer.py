"""A member of a share group: it takes records, and says of each what became of it.

`poll` gives records that are this member's for as long as their locks last (`lock_ms`), and `renew` makes locks last
for as long again. What is to be said of records (`acknowledge`) goes out with the next `poll`, or at once by `commit`;
both tell what was refused. Each broker has a session of its own, on a connection of its own: the broker gives back what
the member holds when it ends. One call at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.client.connection import Connection, error_code
from tailrace.client.metadata import Cluster
from tailrace.client.shares.membership import ShareMembership
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, TopicPartition, Uuid
from tailrace.wire.apis.shares import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tailrace.wire.records import Record, iterate_headers, iterate_records

ACCEPT, RELEASE, REJECT = 1, 2, 3
_GAP, _RENEW = 0, 4
_FIRST_VERSION_WITH_RENEWAL = 2
_RECORD_LIMIT, _FIRST_STRICT_VERSION = 1, 2
_OPEN, _CLOSE = 0, -1
_PAUSE_SECONDS = 0.1
_CALL_MS = 10_000
_SESSION_LOST = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class ShareRecord(NamedTuple):
    partition: TopicPartition
    record: Record
    delivery_count: int


class Refusal(NamedTuple):
    """What was said of these offsets does not count."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    error: KafkaError


class ShareOptions(NamedTuple):
    group_id: str
    topics: Sequence[str]
    member_id: str
    max_records: int = 500
    max_bytes: int = 50 << 20
    # Never more than max_records of a broker, where it can count (KIP-1206); otherwise whole batches.
    is_strict: bool = False
    # Of one batch.
    decompressed_bytes_max: int = 256 << 20


class _Session:
    """With one broker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.epoch = _OPEN
        self.partitions: dict[TopicPartition, Uuid] = {}


class ShareConsumer:
    """`close` it at the end."""

    def __init__(self, cluster: Cluster, options: ShareOptions) -> None:
        self._cluster = cluster
        self._options = options
        self.membership = ShareMembership(cluster, options.group_id, options.member_id, options.topics)
        self._heartbeats = asyncio.get_running_loop().create_task(self.membership.run(), name="share heartbeats")
        self._sessions: dict[NodeId, _Session] = {}
        # What is to be said, by the broker that gave it: another one knows nothing of it.
        self._said: dict[NodeId, dict[TopicPartition, dict[int, int]]] = {}
        self._from: dict[tuple[TopicPartition, int], NodeId] = {}
        # How long a lock lasts, as a broker has said with the last records.
        self.lock_ms = 0

    def acknowledge(self, record: ShareRecord, kind: int = ACCEPT) -> None:
        self._say(record.partition, record.record.offset, kind)

    async def poll(self, max_wait_ms: int, max_records: int | None = None) -> tuple[list[ShareRecord], list[Refusal]]:
        """Of each broker that many records. Raises KafkaError for what does not pass."""
        if self.membership.failure is not None:
            raise self.membership.failure
        by_leader = await self._leaders()
        nodes = {*by_leader, *self._sessions}
        if not nodes:
            await asyncio.sleep(_PAUSE_SECONDS)
            return [], []
        answers = await asyncio.gather(
            *(self._fetch(node_id, by_leader.get(node_id, {}), max_wait_ms, max_records) for node_id in sorted(nodes))
        )
        records = [record for found, _ in answers for record in found]
        return records, [refusal for _, refused in answers for refusal in refused]

    async def commit(self) -> list[Refusal]:
        """Says at once what is to be said."""
        nodes = [node_id for node_id, said in self._said.items() if said]
        return [each for refused in [await self._acknowledge(node_id, None) for node_id in nodes] for each in refused]

    async def renew(self, records: Sequence[ShareRecord]) -> list[Refusal] | None:
        """Says at once what is to be said, too. None if a broker that gave some of them cannot renew locks."""
        held: dict[NodeId, dict[TopicPartition, dict[int, int]]] = {}
        can_all = True
        for partition, record, _ in records:
            node_id = self._from.get((partition, record.offset))
            if node_id is None:
                continue
            if self._can_renew(node_id):
                held.setdefault(node_id, {}).setdefault(partition, {})[record.offset] = _RENEW
            else:
                can_all = False
        refused = [each for node_id, of in held.items() for each in await self._acknowledge(node_id, None, of)]
        return refused if can_all else None

    def _can_renew(self, node_id: NodeId) -> bool:
        session = self._sessions.get(node_id)
        if session is None or not session.connection.is_open:
            return True  # The attempt tells that the locks are lost.
        return session.connection.version_of(ShareAcknowledgeRequest) >= _FIRST_VERSION_WITH_RENEWAL

    async def close(self) -> list[Refusal]:
        """What was said counts, what was not said of is for others."""
        refused: list[Refusal] = []
        for node_id in list(self._sessions):
            refused += await self._acknowledge(node_id, _CLOSE)
            self._drop(node_id)
        self._heartbeats.cancel()
        await asyncio.wait((self._heartbeats,))
        await self.membership.leave()
        return refused

    def abandon(self) -> None:
        """Without a word: brokers notice that its connections are gone, and the group that it is silent."""
        self._heartbeats.cancel()
        self.membership.close()
        for node_id in list(self._sessions):
            self._drop(node_id)

    # ---- brokers

    async def _leaders(self) -> dict[NodeId, dict[TopicPartition, Uuid]]:
        found: dict[NodeId, dict[TopicPartition, Uuid]] = {}
        for partition, topic_id in self.membership.assignment.items():
            try:
                leader = await self._cluster.leader_of(partition)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                continue
            found.setdefault(leader.leader_id, {})[partition] = topic_id
        return found

    async def _session(self, node_id: NodeId) -> _Session:
        session = self._sessions.get(node_id)
        if session is None or not session.connection.is_open:
            self._drop(node_id)
            address = self._cluster.brokers.get(node_id)
            if address is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not among the live ones")
            session = self._sessions[node_id] = _Session(await self._cluster.open(address))
        return session

    def _drop(self, node_id: NodeId) -> None:
        session = self._sessions.pop(node_id, None)
        if session is not None:
            session.connection.close()

    def _lose(
        self, node_id: NodeId, said: Mapping[TopicPartition, Mapping[int, int]], error: KafkaError
    ) -> list[Refusal]:
        self._drop(node_id)
        self._cluster.forget_all()
        return [Refusal(partition, tuple(offsets), error) for partition, offsets in said.items()]

    # ---- fetches

    async def _fetch(
        self, node_id: NodeId, wanted: Mapping[TopicPartition, Uuid], max_wait_ms: int, max_records: int | None
    ) -> tuple[list[ShareRecord], list[Refusal]]:
        said = self._said.pop(node_id, {})
        try:
            session = await self._session(node_id)
            if session.epoch == _OPEN and said:
                # It was said of what an earlier session held.
                lost = KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the connection to the broker was lost")
                return [], self._lose(node_id, said, lost)
            request, known = self._request(session, wanted, said, max_wait_ms)
            request.max_records = request.batch_size = max_records or self._options.max_records
            if self._options.is_strict and session.connection.version_of(ShareFetchRequest) >= _FIRST_STRICT_VERSION:
                request.share_acquire_mode = _RECORD_LIMIT
            answer = await session.connection.call(request, ShareFetchResponse, timeout_ms=max_wait_ms + _CALL_MS)
            code = error_code(answer.error_code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, answer.error_message or "the fetch was refused")
        except KafkaError as error:
            if not error.code.retriable and error.code not in _SESSION_LOST:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
            return [], self._lose(node_id, said, error)
        session.epoch += 1
        session.partitions = dict(wanted)
        self.lock_ms = answer.acquisition_lock_timeout_ms
        return self._read(node_id, answer, known, said)

    def _request(
        self,
        session: _Session,
        wanted: Mapping[TopicPartition, Uuid],
        said: Mapping[TopicPartition, Mapping[int, int]],
        max_wait_ms: int,
    ) -> tuple[ShareFetchRequest, dict[tuple[Uuid, int], TopicPartition]]:
        request = ShareFetchRequest
        known = {**session.partitions, **wanted}
        topics: dict[Uuid, Any] = {}
        for partition, topic_id in known.items():
            is_told = partition in session.partitions and partition not in said
            if is_told or (partition not in wanted and partition not in said):
                continue
            topic = topics.setdefault(topic_id, request.FetchTopic(topic_id=topic_id))
            topic.partitions.append(
                request.FetchPartition(
                    partition_index=partition.partition,
                    acknowledgement_batches=_batches(request.AcknowledgementBatch, said.get(partition, {})),
                )
            )
        forgotten: dict[Uuid, list[int]] = {}
        for partition, topic_id in session.partitions.items():
            if partition not in wanted:
                forgotten.setdefault(topic_id, []).append(partition.partition)
        asked = request(
            group_id=self._options.group_id,
            member_id=self._options.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._options.max_bytes,
            max_records=self._options.max_records,
            batch_size=self._options.max_records,
            topics=list(topics.values()),
            forgotten_topics_data=[
                request.ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()
            ],
        )
        return asked, {(topic_id, partition.partition): partition for partition, topic_id in known.items()}

    def _read(
        self,
        node_id: NodeId,
        answer: ShareFetchResponse,
        known: Mapping[tuple[Uuid, int], TopicPartition],
        said: Mapping[TopicPartition, Mapping[int, int]],
    ) -> tuple[list[ShareRecord], list[Refusal]]:
        records: list[ShareRecord] = []
        refused: list[Refusal] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition = known[Uuid(topic.topic_id), data.partition_index]
                if data.acknowledge_error_code and partition in said:
                    error = KafkaError(error_code(data.acknowledge_error_code), data.acknowledge_error_message or "")
                    refused.append(Refusal(partition, tuple(said[partition]), error))
                if data.error_code:
                    code = error_code(data.error_code)
                    if not code.retriable:
                        raise KafkaError(code, data.error_message or f"{partition} cannot be read")
                    self._cluster.forget(partition.topic)
                records += self._records(node_id, partition, data)
        return records, refused

    def _records(
        self, node_id: NodeId, partition: TopicPartition, data: ShareFetchResponse.PartitionData
    ) -> list[ShareRecord]:
        """Those that were acquired; an offset without a record is said to be a gap."""
        counts = {
            offset: each.delivery_count
            for each in data.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        self._from |= dict.fromkeys(((partition, offset) for offset in counts), node_id)
        found: list[ShareRecord] = []
        received = memoryview(data.records or b"")  # type: ignore[arg-type]
        for start, header in iterate_headers(received, allow_partial=True):
            if header.is_control:
                continue
            batch = received[start : start + header.size_bytes]
            for record in iterate_records(batch, max_decompressed_bytes=self._options.decompressed_bytes_max):
                count = counts.pop(record.offset, None)
                if count is not None:
                    found.append(ShareRecord(partition, record, count))
        for offset in counts:
            self._say(partition, offset, _GAP)
        return found

    # ---- what is said

    def _say(self, partition: TopicPartition, offset: int, kind: int) -> None:
        node_id = self._from.pop((partition, offset), None)
        if node_id is not None:
            self._said.setdefault(node_id, {}).setdefault(partition, {})[offset] = kind

    async def _acknowledge(
        self, node_id: NodeId, epoch: int | None, renewed: Mapping[TopicPartition, Mapping[int, int]] | None = None
    ) -> list[Refusal]:
        said = self._said.pop(node_id, {})
        for partition, offsets in (renewed or {}).items():
            said[partition] = {**offsets, **said.get(partition, {})}
        session = self._sessions.get(node_id)
        if session is None or not session.connection.is_open or session.epoch == _OPEN:
            lost = KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the connection to the broker was lost")
            return self._lose(node_id, said, lost)
        request = ShareAcknowledgeRequest
        topics: dict[Uuid, Any] = {}
        known = {(topic_id, int(partition.partition)): partition for partition, topic_id in session.partitions.items()}
        for partition, offsets in said.items():
            topic_id = session.partitions.get(partition) or (await self._cluster.topic(partition.topic)).id
            known[topic_id, partition.partition] = partition
            topic = topics.setdefault(topic_id, request.AcknowledgeTopic(topic_id=topic_id))
            topic.partitions.append(
                request.AcknowledgePartition(
                    partition_index=partition.partition,
                    acknowledgement_batches=_batches(request.AcknowledgementBatch, offsets),
                )
            )
        asked = request(
            group_id=self._options.group_id,
            member_id=self._options.member_id,
            share_session_epoch=session.epoch if epoch is None else epoch,
            is_renew_ack=bool(renewed),
            topics=list(topics.values()),
        )
        try:
            answer = await session.connection.call(asked, ShareAcknowledgeResponse, timeout_ms=_CALL_MS)
            code = error_code(answer.error_code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, answer.error_message or "the acknowledgement was refused")
        except KafkaError as error:
            return self._lose(node_id, said, error)
        session.epoch += 1
        refused: list[Refusal] = []
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    partition = known[Uuid(topic.topic_id), data.partition_index]
                    problem = KafkaError(error_code(data.error_code), data.error_message or "")
                    refused.append(Refusal(partition, tuple(said.get(partition, ())), problem))
        return refused


def _batches(batch_type: Any, said: Mapping[int, int]) -> list[Any]:
    """Neighbours of one kind are one range."""
    batches: list[Any] = []
    for offset in sorted(said):
        last = batches[-1] if batches else None
        if last is not None and last.last_offset == offset - 1 and last.acknowledge_types == [said[offset]]:
            last.last_offset = offset
        else:
            batches.append(batch_type(first_offset=offset, last_offset=offset, acknowledge_types=[said[offset]]))
    return batches
