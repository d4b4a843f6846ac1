"""Classic groups as Apache Kafka 4.3.0 serves them: the same requests at the same times get the same answers and leave
the same records. `groups/kafka.json` is what a single Kafka broker did in `groups.scenarios`, with its settings there.
"""

import json
from pathlib import Path

import pytest

from tailrace.wire.apis.stored_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue
from tailrace.wire.compile import decode, encode
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message
from tests.golden.groups.clients import Clients
from tests.golden.groups.scenarios import DELAY_MS, SCENARIOS, SIZE_MAX, Scenario
from tests.unit.coordinator.classic.scene import Scene
from tests.unit.coordinator.scene import Asked

KAFKA = json.loads((Path(__file__).parent / "groups" / "kafka.json").read_text())


class OurMachine:
    def __init__(self) -> None:
        self._scene = Scene(
            group_initial_rebalance_delay_ms=DELAY_MS,
            group_min_session_timeout_ms=100,
            group_max_session_timeout_ms=60_000,
            group_max_size=SIZE_MAX,
        )
        self._waiting: dict[int, Asked] = {}

    def send(self, number: int, request: Message, version: int, client_id: str) -> None:
        # What the version cannot say does not reach us.
        received = decode(type(request), version, encode(request, version))
        self._waiting[number] = self._scene.send(received, version, client_id)

    def pass_ms(self, duration_ms: int) -> None:
        self._scene.pass_ms(duration_ms)

    def take_answers(self) -> list[tuple[int, Message]]:
        answered = {number: asked for number, asked in self._waiting.items() if not asked.is_waiting}
        self._waiting = {number: asked for number, asked in self._waiting.items() if asked.is_waiting}
        return [
            (number, decode(type(asked.answer), asked.api_version, encode(asked.answer, asked.api_version)))
            for number, asked in answered.items()
        ]

    def stored(self, group_id: str) -> list[GroupMetadataValue | None]:
        found: list[GroupMetadataValue | None] = []
        for written in self._scene.log:
            key, value = decode_coordinator_record(GROUP_RECORDS, written.key, written.value)
            assert isinstance(key, GroupMetadataKey)
            assert isinstance(value, GroupMetadataValue | None)
            assert key.group == group_id
            assert written.value is None or written.value[:2] == b"\x00\x03", "the version of Kafka 4.3"
            found.append(value)
        return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_classic_group_is_served_as_kafka_serves_it(scenario: Scenario):
    clients = Clients(OurMachine(), "g")
    scenario(clients)
    assert clients.finish() == KAFKA[scenario.__name__]
