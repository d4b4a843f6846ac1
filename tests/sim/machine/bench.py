"""The runtime of a coordinator in miniature: one machine, a log in memory, and a clock that tests move.

Requests, answers and records all go through their bytes. What a record says is replayed at once, and an answer is
there at once too, for whoever asked to look at when he likes: the waiting for replicas is not the machine's business.
"""

from __future__ import annotations

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Call, Producer, Result, Steps
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.compile import decode, encode
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value
from tailrace.wire.schema import Message

START_WALL_MS = 1_767_225_600_000
STEPS_MAX = 100_000


class Asked:
    """Who waits for an answer, and what became of it."""

    client_host = "/127.0.0.1"
    may_describe = None

    def __init__(self, request: Message, api_version: int, client_id: str, peer: str, asked_ms: float) -> None:
        self.peer = peer
        self.request = request
        self.api_version = api_version
        self.client_id = client_id
        self.asked_ms = asked_ms
        self.is_over = False
        self.answer: Message | None = None
        self.error: ErrorCode | None = None

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or self.error is not None


class GroupBench:
    def __init__(self, random: SimRandom, topics: dict[str, int], settings: dict[str, str]) -> None:
        self.random = random
        self.now_ms = 1000.0
        self.config = parse_broker_config({"node.id": "1", "log.dirs": "/data", **settings})
        self.image = image_of(topics)
        self.log: list[tuple[bytes, bytes | None, Producer | None]] = []
        self.machine = GroupMachine(History(groups_max=10, rebalances_max=10))
        self._open: list[Asked] = []
        self._work: Steps | None = None
        self.machine.on_loaded(self.call())

    def call(self) -> Call:
        return Call(START_WALL_MS + int(self.now_ms), self.now_ms, self.image, self.config, self.random)

    def ask(
        self, request: Message, *, client_id: str, api_version: int | None = None, peer: str = "127.0.0.1:50000"
    ) -> Asked:
        version = request.versions[-1] if api_version is None else api_version
        asked = Asked(request, version, client_id, peer, self.now_ms)
        self._open = [each for each in self._open if not each.is_answered]
        self._open.append(asked)
        try:
            self._take(self.machine.op(self.call(), asked, through_bytes(request, version)))
        except KafkaError as error:
            asked.error = error.code
        return asked

    @property
    def open_count(self) -> int:
        """Who has asked, still listens, and has no answer."""
        return sum(not each.is_answered and not each.is_over for each in self._open)

    def advance(self, duration_ms: float) -> None:
        """Deadlines come in their order, and a little late, as on a busy broker."""
        self.now_ms += duration_ms
        self.settle()

    def settle(self) -> None:
        for _ in range(STEPS_MAX):
            result = self.machine.on_deadline(self.call())
            if result is None:
                break
            self._take(result)
        else:
            raise AssertionError("deadlines go round and round")

    def step_work(self) -> bool:
        """One slice of what is computed in the background; whether there is more."""
        if self._work is None:
            self._work = self.machine.take_work(self.call())
        if self._work is None:
            return False
        try:
            next(self._work)
        except StopIteration as end:
            self._work = None
            self._take(end.value)
        return True

    def finish_work(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.step_work():
                return
        raise AssertionError("work never ends")

    def change_image(self, topics: dict[str, int]) -> None:
        old, self.image = self.image, image_of(topics)
        for result in self.machine.on_image(self.call(), old):
            self._take(result)

    def fail_over(self) -> None:
        """Another broker replays the log; whoever waited is sent away."""
        for asked in self._open:
            if not asked.is_answered:
                asked.error = ErrorCode.NOT_COORDINATOR
        self._open.clear()
        self._work = None
        self.machine = self.replay()
        for result in self.machine.on_loaded(self.call()):
            self._take(result)

    def replay(self, *, compacted_to: int = 0) -> GroupMachine:
        """A new machine from the log, or from what the cleaner leaves of it, who has come so far."""
        machine = GroupMachine(History(groups_max=10, rebalances_max=10))
        last = {record[0]: number for number, record in enumerate(self.log[:compacted_to])}
        for number, (key, value, producer) in enumerate(self.log):
            if number >= compacted_to or (last[key] == number and value is not None):
                machine.replay_stored(key, value, producer)
        return machine

    def _take(self, result: Result) -> None:
        for record in result.records:
            key = encode_coordinator_key(record.key)
            value = None if record.value is None else encode_coordinator_value(record.value, record.version)
            self.log.append((key, value, result.producer))
            self.machine.replay(record.key, record.value, result.producer, (key, value))
        for caller, answer in result.answers:
            assert isinstance(caller, Asked)
            assert caller.answer is None, f"answered twice: {caller.request}"
            if caller.error is None:
                caller.answer = through_bytes(answer, caller.api_version)


def through_bytes(message: Message, version: int) -> Message:
    return decode(type(message), version, bytes(encode(message, version)))


def image_of(topics: dict[str, int]) -> MetadataImage:
    images = {
        name: TopicImage(
            name,
            topic_id(name),
            {
                index: PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), leader_epoch=0, partition_epoch=0)
                for index in range(count)
            },
        )
        for name, count in topics.items()
    }
    names = {topic.id: topic.name for topic in images.values()}
    return MetadataImage("bench", topics=images, topic_names=names, next_offset=sum(topics.values()))


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\x01"))
