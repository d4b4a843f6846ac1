"""Classic groups as Apache Kafka 4.3.0 serves them: the same requests at the same times get the same answers and leave
the same records. `groups/kafka.json` is what a single Kafka broker did in `groups.scenarios`, with its settings there.
"""

import json
from pathlib import Path

import pytest

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Call, Result
from tailrace.model.config import BrokerConfig
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.stored import GroupMetadataKey, GroupMetadataValue
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Message
from tests.golden.groups.clients import Clients
from tests.golden.groups.scenarios import DELAY_MS, SCENARIOS, SIZE_MAX, Scenario

KAFKA = json.loads((Path(__file__).parent / "groups" / "kafka.json").read_text())


class Caller:
    client_host = "/127.0.0.1"
    is_over = False

    def __init__(self, number: int, api_version: int, client_id: str) -> None:
        self.number = number
        self.api_version = api_version
        self.client_id = client_id


class OurMachine:
    def __init__(self) -> None:
        self._machine = GroupMachine(History(groups_max=1, rebalances_max=1))
        self._config = BrokerConfig(
            node_id=1,
            group_initial_rebalance_delay_ms=DELAY_MS,
            group_min_session_timeout_ms=100,
            group_max_session_timeout_ms=60_000,
            group_max_size=SIZE_MAX,
        )
        self._random = SimRandom(1)
        self._now_ms = 1_000.0
        self._answers: list[tuple[int, Message]] = []
        self._stored: list[tuple[Message, Message | None]] = []

    def send(self, number: int, request: Message, version: int, client_id: str) -> None:
        # What the version cannot say does not reach us.
        received = decode(type(request), version, encode(request, version))
        self._apply(self._machine.op(self._call(), Caller(number, version, client_id), received))

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self._now_ms + duration_ms
        while (due_ms := self._machine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._now_ms = max(self._now_ms, due_ms)
            result = self._machine.on_deadline(self._call())
            assert result is not None
            self._apply(result)
        self._now_ms = end_ms

    def take_answers(self) -> list[tuple[int, Message]]:
        answers, self._answers = self._answers, []
        return answers

    def stored(self, group_id: str) -> list[GroupMetadataValue | None]:
        found: list[GroupMetadataValue | None] = []
        for key, value in self._stored:
            assert isinstance(key, GroupMetadataKey)
            assert isinstance(value, GroupMetadataValue | None)
            assert key.group == group_id
            found.append(value)
        return found

    def _call(self) -> Call:
        return Call(int(self._now_ms), self._now_ms, MetadataImage("cluster"), self._config, self._random)

    def _apply(self, result: Result) -> None:
        for record in result.records:
            assert record.version == 3
            self._stored.append((record.key, record.value))
            self._machine.replay(record.key, record.value)
        for caller, answer in result.answers:
            assert isinstance(caller, Caller)
            self._answers.append(
                (caller.number, decode(type(answer), caller.api_version, encode(answer, caller.api_version)))
            )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_classic_group_is_served_as_kafka_serves_it(scenario: Scenario):
    clients = Clients(OurMachine(), "g")
    scenario(clients)
    assert clients.finish() == KAFKA[scenario.__name__]
