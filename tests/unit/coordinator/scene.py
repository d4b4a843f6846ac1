"""A coordinator's machine in the hands of a test, with its log, the metadata, and the simulated clock and randomness.

A `Scene` does with results what `broker.coordinators.shard` does, without a loop: records are replayed and written,
answers reach whoever asked. After every result the whole log is replayed by a second machine, which must hold the same
(`durable`). What a kind of coordinator has beside that, its requests and its clients, is in the scene of its folder.
"""

from typing import Any, NamedTuple

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Call, Producer, Result, Steps
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.sim.clock import SimClock
from tailrace.sim.random import SimRandom
from tailrace.wire.compile import encode
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value
from tailrace.wire.schema import Message

START_MS = 1_000_000


class Asked:
    """A request, and what came back; a Caller to the machine."""

    client_host = "/127.0.0.1"
    may_describe = None
    is_over = False

    def __init__(self, api_version: int, client_id: str = "app", peer: str = "127.0.0.1:50000") -> None:
        self.api_version = api_version
        self.peer = peer
        self.client_id = client_id
        self.answers: list[Any] = []

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        """The answer, whose type the request decides; None while it waits. A request is answered once."""
        assert len(self.answers) <= 1
        return self.answers[0] if self.answers else None

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    producer: Producer | None


def run(steps: Steps) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


class Scene:
    def __init__(self, image: MetadataImage | None = None, **settings: Any) -> None:
        self.config = BrokerConfig(node_id=1, **settings)
        self.clock = SimClock(START_MS)
        self.image = image or MetadataImage("cluster")
        self.log: list[Written] = []
        self.machine: Any = self.new_machine()
        # The clients' end of the connection.
        self.peer = "127.0.0.1:50000"
        # While it is set, computations are the test's to take.
        self.work_is_held = False
        self._random = SimRandom(1)

    def new_machine(self) -> Any:
        return GroupMachine(History(groups_max=10, rebalances_max=50))

    def durable(self, machine: Any) -> Any:
        """All that the log tells about a machine."""
        raise NotImplementedError

    @property
    def monotonic_ms(self) -> float:
        return self.clock.monotonic_ms()

    def call(self) -> Call:
        return Call(self.clock.wall_ms(), self.monotonic_ms, self.image, self.config, self._random)

    # ---- what a shard does

    def ask(self, request: Message, version: int | None = None, client_id: str = "app") -> Asked:
        """With all that follows from it at once. KafkaError if it is refused as a whole."""
        asked = self.send(request, version, client_id)
        self.work()
        return asked

    def send(self, request: Message, version: int | None = None, client_id: str = "app") -> Asked:
        """Without what follows from it, so that several requests can be under way at once."""
        asked = Asked(request.versions[-1] if version is None else version, client_id, self.peer)
        self.apply(self.machine.op(self.call(), asked, request))
        return asked

    def refusal_of(self, request: Message, version: int | None = None) -> ErrorCode:
        """NONE if it was not refused as a whole."""
        try:
            self.ask(request, version)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def apply(self, result: Result) -> None:
        for key, value, version in result.records:
            stored = encode_coordinator_key(key), None if value is None else encode_coordinator_value(value, version)
            self.machine.replay(key, value, result.producer, stored)
            self.log.append(Written(*stored, result.producer))
        for asked, response in result.answers:
            assert isinstance(asked, Asked)
            # What cannot be encoded would reach nobody.
            encode(response, asked.api_version)
            asked.answers.append(response)
        self.check_replay()

    def check_replay(self) -> None:
        assert self.durable(self.replayed()) == self.durable(self.machine)

    def replayed(self) -> Any:
        """Another machine, which has the log and nothing else."""
        machine = self.new_machine()
        for written in self.log:
            self.replay(machine, written)
        return machine

    def replay(self, machine: Any, written: Written) -> None:
        machine.replay_stored(*written)

    def work(self) -> int:
        """All that is to be computed, and what is due now; gives the number of computations with records."""
        count = self._compute()
        self.pass_ms(0)
        return count

    def _compute(self) -> int:
        count = 0
        while not self.work_is_held and (steps := self.machine.take_work(self.call())) is not None:
            result = run(steps)
            count += bool(result.records)
            self.apply(result)
        return count

    def pass_ms(self, duration_ms: float) -> None:
        """Deadlines are met one after the other, each at its time; what they ask to be computed is computed at once."""
        end_ms = self.monotonic_ms + duration_ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.clock.advance_ms(max(0.0, due_ms - self.monotonic_ms))
            result = self.machine.on_deadline(self.call())
            assert result is not None
            self.apply(result)
            self._compute()
        self.clock.advance_ms(end_ms - self.monotonic_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """As if the process had been stopped: what falls due meanwhile is met at the end, late."""
        self.clock.advance_ms(duration_ms)
        while (result := self.machine.on_deadline(self.call())) is not None:
            self.apply(result)
        self._compute()

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        for result in self.machine.on_image(self.call(), old):
            self.apply(result)

    def load(self) -> None:
        """What a machine does once it has its log."""
        for result in self.machine.on_loaded(self.call()):
            self.apply(result)
        self.work()

    def fail_over(self) -> None:
        """To another coordinator, which has the log and nothing else."""
        self.machine = self.replayed()
        self.load()
