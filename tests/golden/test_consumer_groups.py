"""Consumer groups as Apache Kafka 4.3.0 serves them: the same heartbeats get the same answers and leave the same
records. `groups/consumers.json` is what a single Kafka broker did in `groups.consumers`, with the settings there.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tailrace.model.errors import KafkaError
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tailrace.wire.apis.stored_records import GROUP_RECORDS
from tailrace.wire.compile import decode, encode
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message
from tests.golden.groups.consumers import HEARTBEAT_MS, SCENARIOS, SESSION_MS, SIZE_MAX, Members
from tests.unit.coordinator.consumers.scene import GROUP, Scene

KAFKA = json.loads((Path(__file__).parent / "groups" / "consumers.json").read_text())


class OurMachine:
    def __init__(self) -> None:
        self._scene = Scene(
            {},
            group_consumer_assignment_interval_ms=0,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_min_session_timeout_ms=SESSION_MS,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            group_consumer_min_heartbeat_interval_ms=HEARTBEAT_MS,
            group_consumer_max_size=SIZE_MAX,
        )
        self._topic_ids: dict[bytes, str] = {}

    def ask(self, request: ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeatResponse:
        try:
            asked = self._scene.ask(decode(type(request), version, encode(request, version)), version)
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code)
        return asked.answer

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        self._scene.set_topics(sizes)
        self._topic_ids |= {topic.id: topic.name for topic in self._scene.image.topics.values()}

    def pass_ms(self, duration_ms: int) -> None:
        self._scene.pass_ms(duration_ms)

    def topic_ids(self) -> Mapping[bytes, str]:
        return self._topic_ids

    def records(self) -> list[tuple[Message, Message | None]]:
        return [decode_coordinator_record(GROUP_RECORDS, key, value) for key, value, _ in self._scene.log]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_consumer_group_is_served_as_kafka_serves_it(scenario: Callable[[Members], None]):
    members = Members(OurMachine(), GROUP)
    scenario(members)
    assert members.finish() == KAFKA[scenario.__name__]
