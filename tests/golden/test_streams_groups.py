"""Streams groups as Apache Kafka 4.3.0 serves them: the same heartbeats get the same answers and leave the same
records. `groups/streams.json` is what a single Kafka broker did in `groups.streams`, with the settings there."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.model.errors import KafkaError
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tailrace.wire.apis.stored_records import GROUP_RECORDS
from tailrace.wire.compile import decode, encode
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message
from tests.golden.groups.streams import SCENARIOS, SETTINGS
from tests.golden.groups.streams_clients import Members
from tests.unit.coordinator.streams.scene import GROUP, Scene

KAFKA = json.loads((Path(__file__).parent / "groups" / "streams.json").read_text())


class OurMachine:
    def __init__(self) -> None:
        self._scene = Scene({}, **{name.replace(".", "_"): value for name, value in SETTINGS.items()})

    def ask(self, request: Message) -> Any:
        try:
            return self._scene.ask(decode(type(request), 0, encode(request, 0))).answer
        except KafkaError as error:
            assert isinstance(request, StreamsGroupHeartbeatRequest)
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        self._scene.set_topics(sizes)

    def wait_created(self, names: list[str]) -> None:
        self._scene.create_missing()
        assert set(names) <= self._scene.image.topics.keys()

    def set_config(self, name: str, value: str) -> None:
        self._scene.set_config(name, value)

    def pass_ms(self, duration_ms: int) -> None:
        self._scene.pass_ms(duration_ms)

    def records(self) -> list[tuple[Message, Message | None]]:
        return [decode_coordinator_record(GROUP_RECORDS, key, value) for key, value, _ in self._scene.log]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_streams_group_is_served_as_kafka_serves_it(scenario: Callable[[Members], None]):
    members = Members(OurMachine(), GROUP)
    scenario(members)
    assert members.finish() == KAFKA[scenario.__name__]
