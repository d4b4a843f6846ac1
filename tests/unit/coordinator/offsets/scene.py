"""Committed offsets: what clients ask of their coordinator, and the topics that there are."""

from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.offsets.store import CommittedOffset, OffsetStore, read_offset
from tailrace.coordinator.op import Result, StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetFetchRequest
from tailrace.wire.apis.stored_records import ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue
from tailrace.wire.compile import encode
from tailrace.wire.schema import Message
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import START_MS, Written

MINUTE_MS = 60_000
RETENTION_MINUTES = 10

_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)
_MARKER: Any = object()


def topic_id(name: str, incarnation: int = 0) -> Uuid:
    return Uuid((name.encode() + b"." * 16)[:15] + bytes([incarnation]))


class Asked(scene.Asked):
    def __init__(self, api_version: int) -> None:
        super().__init__(api_version, "c")
        self.code = ErrorCode.NONE  # the error of a request that was refused as a whole
        self.records: tuple[StoredRecord, ...] = ()


class Scene(scene.Scene):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"offsets_retention_minutes": RETENTION_MINUTES, **settings})
        self.create("t", 3)

    @property
    def offsets(self) -> OffsetStore:
        return self.machine.state.offsets  # type: ignore[no-any-return]

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    # ---- topics

    def create(self, name: str, partitions: int, *, incarnation: int = 0) -> None:
        topic = TopicImage(name, topic_id(name, incarnation), dict.fromkeys(range(partitions), _PARTITION))
        self._publish({**self.image.topics, name: topic})

    def delete(self, name: str) -> None:
        self._publish({each: topic for each, topic in self.image.topics.items() if each != name})

    def _publish(self, topics: dict[str, TopicImage]) -> None:
        names = {topic.id: name for name, topic in topics.items()}
        next_offset = self.image.next_offset + 1
        self.publish(MetadataImage("cluster", topics=topics, topic_names=names, next_offset=next_offset))

    # ---- ops

    def ask(self, request: Message, version: int) -> Asked:
        asked = Asked(version)
        try:
            result = self.machine.op(self.call(), asked, request)
        except KafkaError as error:
            asked.code = error.code
            return asked
        asked.records = tuple(result.records)
        self.apply(result)
        return asked

    def mark(self, producer_id: int, *, is_commit: bool) -> None:
        self.log.append(Written(_MARKER, None, (producer_id, is_commit)))
        self.machine.replay_marker(producer_id, is_commit=is_commit)
        self.check_replay()

    def replay(self, machine: Any, written: Written) -> None:
        if written.key is _MARKER:
            producer_id, is_commit = written.producer
            machine.replay_marker(producer_id, is_commit=is_commit)
        else:
            super().replay(machine, written)

    def store(self, *records: StoredRecord) -> None:
        """As if an earlier coordinator had written them."""
        self.apply(Result(records))

    # ---- offsets

    def commit(
        self,
        offset: int,
        *,
        group_id: str = "g",
        topic: str = "t",
        partition: int = 0,
        version: int = 9,
        generation: int = -1,
        member_id: str = "",
        **rest: Any,
    ) -> Asked:
        return self.ask(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=[
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=topic if version < 10 else "",
                        topic_id=topic_id(topic) if version >= 10 else bytes(16),
                        partitions=[
                            OffsetCommitRequest.OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset, committed_metadata=""
                            )
                        ],
                    )
                ],
                **rest,
            ),
            version,
        )

    def fetch(
        self, *partitions: int, group_id: str = "g", topic: str = "t", require_stable: bool = False
    ) -> dict[int, int | ErrorCode]:
        """Offsets, or errors, by partition."""
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=[asked])
        answer = self.ask(OffsetFetchRequest(groups=[group], require_stable=require_stable), 9).answer
        return {
            each.partition_index: ErrorCode(each.error_code) if each.error_code else each.committed_offset
            for each in answer.groups[0].topics[0].partitions
        }

    def durable(self, machine: Any) -> Any:
        offsets = machine.state.offsets
        assert len(offsets) == len(contents(offsets))
        return contents(offsets)


def contents(offsets: OffsetStore) -> dict[tuple[str, str, int], CommittedOffset]:
    return {
        (group_id, topic, partition): read_offset(value)
        for group_id, topics in offsets.groups.items()
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


def subscription(*topics: str) -> bytes:
    return bytes(2) + bytes(encode(ConsumerProtocolSubscription(topics=list(topics)), 0))


def classic_group(group_id: str, *topics: str, since_ms: int = START_MS) -> StoredRecord:
    """A group of consumers: stable, with one member `m` in generation 3 that reads `topics`; without topics, empty."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=subscription(*topics),
        assignment=b"assigned",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range" if topics else None,
        leader="m" if topics else None,
        current_state_timestamp=since_ms,
        members=[member] if topics else [],
    )
    return StoredRecord(GroupMetadataKey(group=group_id), value, 3)
