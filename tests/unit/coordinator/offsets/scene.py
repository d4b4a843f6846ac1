"""A machine, its log, the topics that exist and a clock that tests move.

After every op the whole log is replayed by a second machine, which must hold the same offsets.
"""

from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.offsets.store import CommittedOffset, OffsetStore, read_offset
from tailrace.coordinator.op import Call, Producer, Result, StoredRecord
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Offset, Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetFetchRequest
from tailrace.wire.apis.stored import ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue
from tailrace.wire.compile import encode
from tailrace.wire.schema import Message
from tailrace.wire.stored import encode_coordinator_key, encode_coordinator_value

START_MS = 1_000_000
MINUTE_MS = 60_000
RETENTION_MINUTES = 10

_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)
_MARKER = object()


def topic_id(name: str, incarnation: int = 0) -> Uuid:
    return Uuid((name.encode() + b"." * 16)[:15] + bytes([incarnation]))


class Asked:
    """A Caller to the machine, and what came back."""

    client_id = "c"
    client_host = "/127.0.0.1"
    is_over = False

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.answer: Any = None
        self.error: KafkaError | None = None
        self.records: tuple[StoredRecord, ...] = ()

    @property
    def code(self) -> ErrorCode:
        return ErrorCode.NONE if self.error is None else self.error.code


class Scene:
    def __init__(self, **settings: Any) -> None:
        self.config = BrokerConfig(node_id=1, **{"offsets_retention_minutes": RETENTION_MINUTES, **settings})
        self.elapsed_ms = 0
        self.image = MetadataImage("cluster")
        self.log: list[tuple[Any, Any, Producer | None]] = []
        self.machine = _new_machine()
        self._random = SimRandom(1)
        self.create("t", 3)

    @property
    def offsets(self) -> OffsetStore:
        return self.machine.state.offsets

    @property
    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def call(self) -> Call:
        return Call(self.now_ms, float(self.elapsed_ms), self.image, self.config, self._random)

    # ---- topics

    def create(self, name: str, partitions: int, *, incarnation: int = 0) -> None:
        topic = TopicImage(name, topic_id(name, incarnation), dict.fromkeys(range(partitions), _PARTITION))
        self._publish({**self.image.topics, name: topic})

    def delete(self, name: str) -> None:
        self._publish({each: topic for each, topic in self.image.topics.items() if each != name})

    def _publish(self, topics: dict[str, TopicImage]) -> None:
        old = self.image
        names = {topic.id: name for name, topic in topics.items()}
        self.image = MetadataImage("cluster", topics=topics, topic_names=names, next_offset=Offset(old.next_offset + 1))
        for result in self.machine.on_image(self.call(), old):
            self.apply(result)

    # ---- ops

    def ask(self, request: Message, version: int) -> Asked:
        asked = Asked(version)
        try:
            result = self.machine.op(self.call(), asked, request)
        except KafkaError as error:
            asked.error = error
            return asked
        asked.records = tuple(result.records)
        self.apply(result)
        return asked

    def apply(self, result: Result) -> None:
        for key, value, version in result.records:
            stored = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), stored, result.producer))
            self.machine.replay(key, value, result.producer, (encode_coordinator_key(key), stored))
        for caller, answer in result.answers:
            caller.answer = answer  # type: ignore[attr-defined]
        self._check_replay()

    def mark(self, producer_id: int, *, is_commit: bool) -> None:
        self.log.append((_MARKER, (producer_id, is_commit), None))
        self.machine.replay_marker(producer_id, is_commit=is_commit)
        self._check_replay()

    def store(self, *records: StoredRecord) -> None:
        """As if an earlier coordinator had written them."""
        self.apply(Result(records))

    def work(self) -> int:
        """All that is to be computed; gives the number of results with records."""
        count = 0
        while (steps := self.machine.take_work(self.call())) is not None:
            result = run(steps)
            count += bool(result.records)
            self.apply(result)
        return count

    def wait(self, milliseconds: int) -> None:
        """Until then, with all that falls due."""
        self.elapsed_ms += milliseconds
        while (result := self.machine.on_deadline(self.call())) is not None:
            self.apply(result)
        self.work()

    def load(self) -> None:
        for result in self.machine.on_loaded(self.call()):
            self.apply(result)
        self.work()

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

    def _check_replay(self) -> None:
        replica = _new_machine()
        for key, value, producer in self.log:
            if key is _MARKER:
                replica.replay_marker(value[0], is_commit=value[1])
            else:
                replica.replay_stored(key, value, producer)
        assert contents(replica.state.offsets) == contents(self.offsets)
        assert len(replica.state.offsets) == len(self.offsets) == len(contents(self.offsets))


def _new_machine() -> GroupMachine:
    return GroupMachine(History(groups_max=10, rebalances_max=10))


def run(steps: Any) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


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
    """Of consumers: stable, with one member `m` in generation 3 that reads `topics`; without topics it is empty."""
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
