"""Asks a broker about transactions, and keeps the answers as plain data that two brokers can agree on."""

import asyncio
from time import time
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetFetchRequest
from tailrace.wire.apis.stored_records import TRANSACTION_RECORDS
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.records import iterate_headers, iterate_records
from tailrace.wire.schema import Message, Struct
from tests.unit.broker.world import Peer, batch, create_topic

TIMEOUT_MS = 60_000
_GROUP, _TRANSACTION = 0, 1  # What FindCoordinator looks for.
# What a client tries again: the last transaction is still being ended, or the coordinator is not ready.
_PASSING = (ErrorCode.CONCURRENT_TRANSACTIONS, 14, 15, 16)
_TRIES = 60
_PAUSE_SECONDS = 0.05

Place = tuple[str, int]


class Producer:
    """Its id and epoch as the broker gave them, and the next sequence of each partition."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequences: dict[Place, int] = {}


class Asking:
    """Names end in a suffix, so that a broker can be asked more than once; answers are told without it. Producer ids
    are told by their order of appearance, times by whether there is one."""

    def __init__(self, peer: Peer, suffix: str) -> None:
        self.peer = peer
        self.suffix = suffix
        self.answers: dict[str, Any] = {}
        self.last_answer: Any = None
        self.is_patient = True  # What passes is not an answer yet.
        self._producer_ids: dict[int, str] = {}

    def name(self, text: str) -> str:
        return text + self.suffix if text else ""

    async def prepare(self, *topics: str) -> None:
        for topic in topics:
            await create_topic(self.peer, self.name(topic), 2)
        for kind in (_GROUP, _TRANSACTION):
            await self._find_coordinator(kind)
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.name("g"), topics=None)
        await self._repeat(OffsetFetchRequest(groups=[asked]), 9)

    async def find_node(self) -> int:
        """The broker that coordinates transactions."""
        return (await self._find_coordinator(_TRANSACTION)).coordinators[0].node_id

    async def _find_coordinator(self, kind: int) -> Any:
        return await self._repeat(FindCoordinatorRequest(key_type=kind, coordinator_keys=[self.name("x")]), 6)

    async def ask(self, label: str, request: Message, version: int, *, is_repeated: bool = True) -> Any:
        assert label not in self.answers
        answer = await (self._repeat if is_repeated and self.is_patient else self.peer.request)(request, version)
        self.answers[label] = self.plain(answer)
        self.last_answer = answer
        return answer

    async def _repeat(self, request: Message, version: int) -> Any:
        for _ in range(_TRIES):
            answer = await self.peer.request(request, version)
            if not any(code in _PASSING for code in error_codes(answer)):
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        return answer

    # ---- answers as plain data: without what has its default

    def plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, Struct | Message):
            default = type(value)()
            return {
                name: self.plain(getattr(value, name), name)
                for name in value.__slots__
                if not name.startswith("_")
                and name not in ("throttle_time_ms", "error_message")
                and getattr(value, name) != getattr(default, name)
            }
        if isinstance(value, list):
            # In Kafka the order of most of them is that of a hash table.
            return sorted((self.plain(each, field) for each in value), key=str)
        if field == "records":
            return self._batches(bytes(value))
        if field.endswith("producer_id") and value >= 0:
            return self._producer_ids.setdefault(value, f"P{len(self._producer_ids) + 1}")
        if field.endswith("error_code"):
            return ErrorCode(value).name
        if field.endswith(("time_ms", "timestamp_ms", "timestamp")):
            return value > 0
        return value.replace(self.suffix, "") if isinstance(value, str) else value

    def _batches(self, data: bytes) -> list[str]:
        shown: list[str] = []
        for position, header in iterate_headers(data, allow_partial=True):
            records = iterate_records(data[position : position + header.size_bytes], max_decompressed_bytes=1 << 20)
            who = f"{self.plain(header.producer_id, 'producer_id')} epoch {header.producer_epoch}"
            for record in records:
                kind = f"marker {record.key!r}" if header.is_control else f"{record.value!r}"
                shown.append(f"{record.offset}: {who} sequence {header.base_sequence} {kind}")
        return shown

    async def note_stored(self, transactional_id: str) -> None:
        """All that was ever stored of it."""
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
        topic = FetchRequest.FetchTopic(topic="__transaction_state", partitions=[asked])
        answer = await self.peer.request(FetchRequest(max_bytes=50_000_000, topics=[topic]), 12)
        data = bytes(answer.responses[0].partitions[0].records)
        stored: list[Any] = []
        for position, header in iterate_headers(data, allow_partial=True):
            for record in iterate_records(
                data[position : position + header.size_bytes], max_decompressed_bytes=1 << 26
            ):
                assert record.key is not None
                key, value = decode_coordinator_record(TRANSACTION_RECORDS, record.key, record.value)
                if key.transactional_id == self.name(transactional_id):  # type: ignore[attr-defined]
                    version = record.value[:2].hex() if record.value is not None else None
                    stored.append([version, self.plain(value)])
        self.answers[f"stored of {transactional_id}"] = stored

    # ---- requests

    async def init(self, label: str, transactional_id: str, version: int, **fields: Any) -> Producer:
        request = InitProducerIdRequest(transactional_id=self.name(transactional_id), transaction_timeout_ms=TIMEOUT_MS)
        is_repeated = fields.pop("is_repeated", True)
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self.ask(label, request, version, is_repeated=is_repeated)
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    def _identity(self, producer: Producer, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "transactional_id": self.name(fields.pop("transactional_id", producer.transactional_id)),
            "producer_id": fields.pop("producer_id", producer.producer_id),
            "producer_epoch": fields.pop("epoch", producer.epoch),
        }

    def _topics(self, kind: type[Any], field: str, places: tuple[Place, ...]) -> list[Any]:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        return [kind(name=self.name(topic), **{field: partitions}) for topic, partitions in topics.items()]

    async def add(self, label: str, producer: Producer, *places: Place, version: int, **fields: Any) -> None:
        identity = self._identity(producer, fields)
        topics = self._topics(AddPartitionsToTxnRequest.AddPartitionsToTxnTopic, "partitions", places)
        if version < 4:
            request = AddPartitionsToTxnRequest(v3_and_below_topics=topics)
            for name, value in identity.items():
                setattr(request, f"v3_and_below_{name}", value)
        else:
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(**identity, topics=topics, **fields)
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        await self.ask(label, request, version)

    async def add_offsets(self, label: str, producer: Producer, version: int, **fields: Any) -> None:
        group = self.name(fields.pop("group", "g"))
        await self.ask(label, AddOffsetsToTxnRequest(**self._identity(producer, fields), group_id=group), version)

    async def commit_offsets(
        self, label: str, producer: Producer, *places: tuple[str, int, int], version: int, **fields: Any
    ) -> None:
        identity = self._identity(producer, fields)
        topics: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for topic, partition, offset in places:
            each = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata="m"
            )
            topics.setdefault(topic, []).append(each)
        request = TxnOffsetCommitRequest(
            **identity,
            group_id=self.name(fields.pop("group", "g")),
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self.name(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
            **fields,
        )
        await self.ask(label, request, version)

    async def fetch_offsets(self, label: str, *, require_stable: bool, group: str = "g") -> None:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.name(group), topics=None)
        await self.ask(label, OffsetFetchRequest(groups=[asked], require_stable=require_stable), 9)

    async def end(self, label: str, producer: Producer, *, committed: bool, version: int, **fields: Any) -> Any:
        is_repeated = fields.pop("is_repeated", True)
        request = EndTxnRequest(**self._identity(producer, fields), committed=committed)
        answer = await self.ask(label, request, version, is_repeated=is_repeated)
        if answer.error_code == ErrorCode.NONE:
            await self._wait_until_ended(request.transactional_id)
            if version >= 5:
                producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
                producer.sequences.clear()
        return answer

    async def _wait_until_ended(self, transactional_id: str) -> None:
        for _ in range(_TRIES):
            described = await self.peer.request(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
            if not described.transaction_states[0].transaction_state.startswith("Prepare"):
                break
            await asyncio.sleep(_PAUSE_SECONDS)

    async def produce(
        self, label: str, producer: Producer, place: Place, version: int, *, value: bytes = b"v", **fields: Any
    ) -> None:
        """`sequence` where it is not the next one, `transactional` where the batch says otherwise than the request."""
        identity = self._identity(producer, fields)
        sequence = fields.pop("sequence", producer.sequences.get(place, 0))
        records = batch(
            value,
            now_ms=int(time() * 1000),  # Nothing is too old to be kept.
            producer_id=identity["producer_id"],
            producer_epoch=identity["producer_epoch"],
            base_sequence=sequence,
            transactional=fields.pop("transactional", True),
        )
        topic, partition = place
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=identity["transactional_id"] or None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[ProduceRequest.TopicProduceData(name=self.name(topic), partition_data=[data])],
        )
        answer = await self.ask(label, request, version)
        if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
            producer.sequences[place] = sequence + 1

    async def read(self, label: str, place: Place, *, is_committed: bool, offset: int = 0) -> None:
        """Records, and the offsets that ListOffsets tells."""
        topic, partition = place
        isolation_level = 1 if is_committed else 0
        asked = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            isolation_level=isolation_level,
            min_bytes=0,
            topics=[FetchRequest.FetchTopic(topic=self.name(topic), partitions=[asked])],
        )
        await self.ask(f"fetch {label}", fetch, 12)
        latest = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        list_offsets = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=self.name(topic), partitions=[latest])],
        )
        await self.ask(f"latest offset {label}", list_offsets, 5)

    async def mark(
        self, label: str, producer: Producer, *places: Place, committed: bool, version: int, **fields: Any
    ) -> None:
        identity = self._identity(producer, fields)
        del identity["transactional_id"]
        kind = WriteTxnMarkersRequest.WritableTxnMarkerTopic
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            **identity,
            transaction_result=committed,
            topics=self._topics(kind, "partition_indexes", places),
            **fields,
        )
        await self.ask(label, WriteTxnMarkersRequest(markers=[marker]), version)

    async def describe(self, label: str, *transactional_ids: str) -> None:
        names = [self.name(each) for each in transactional_ids]
        await self.ask(label, DescribeTransactionsRequest(transactional_ids=names), 0)

    async def describe_producers(self, label: str, *places: Place) -> None:
        topics = self._topics(DescribeProducersRequest.TopicRequest, "partition_indexes", places)
        await self.ask(label, DescribeProducersRequest(topics=topics), 0)


def error_codes(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for each in value for code in error_codes(each)]
    if not isinstance(value, Struct | Message):
        return []
    codes: list[int] = []
    for name in value.__slots__:
        field = getattr(value, name)
        codes += [field] if name.endswith("error_code") else error_codes(field)
    return codes
