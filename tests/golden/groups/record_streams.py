"""Leads the scenarios of streams groups in front of Apache Kafka, and writes down what it did: see `streams`."""

import json
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import FindCoordinatorRequest, StreamsGroupDescribeRequest
from tailrace.wire.apis.stored_records import GROUP_RECORDS
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message
from tests.apache_kafka import ApacheKafka
from tests.golden.groups.streams import SCENARIOS, SETTINGS
from tests.golden.groups.streams_clients import Members

_NOT_FOUND = int(ErrorCode.GROUP_ID_NOT_FOUND)
_SETTLE_S = 2.0
_DEADLINE_S = 20.0


class KafkaCoordinator:
    def __init__(self, bootstrap: str, group_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_DEADLINE_S)
        self._bootstrap, self._group_id = bootstrap, group_id
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def ask(self, request: Message) -> Any:
        for part in encode_request(request.api_key, 0, 1, "app", request):
            assert isinstance(part, bytes | bytearray | memoryview)
            self._socket.sendall(part)
        size = int.from_bytes(self._exactly(4), "big")
        _, answer = decode_response(request.api_key, 0, self._exactly(size))
        return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data))
        return data

    def _sizes(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=_DEADLINE_S).topics
        return {name: len(each.partitions) for name, each in topics.items() if name.startswith(f"{self._group_id}-")}

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        known = self._sizes()
        waits = [
            *self._admin.delete_topics([name for name in known if name not in sizes] or [" "]).values(),
            *self._admin.create_topics(
                [NewTopic(name, count) for name, count in sizes.items() if name not in known] or [NewTopic(" ", 1)]
            ).values(),
            *self._admin.create_partitions(
                [NewPartitions(name, count) for name, count in sizes.items() if known.get(name, count) < count]
                or [NewPartitions(" ", 1)]
            ).values(),
        ]
        for each in waits:
            each.exception(_DEADLINE_S)
        time.sleep(_SETTLE_S)
        assert self._sizes() == dict(sizes)

    def wait_created(self, names: list[str]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not set(names) <= self._sizes().keys():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(_SETTLE_S)

    def set_config(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, self._group_id, incremental_configs=[entry])
        for each in self._admin.incremental_alter_configs([resource]).values():
            each.result(_DEADLINE_S)
        time.sleep(_SETTLE_S)

    def pass_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def records(self) -> list[tuple[Message, Message | None]]:
        self._socket.close()
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "reader", "enable.partition.eof": True})
        consumer.assign([TopicPartition("__consumer_offsets", 0, 0)])
        found = []
        while (message := consumer.poll(_DEADLINE_S)) is not None and message.error() is None:
            key, value = decode_coordinator_record(GROUP_RECORDS, message.key(), message.value())
            if getattr(key, "group_id", "") == self._group_id:
                found.append((key, value))
        consumer.close()
        return found


def _wait_coordinator(kafka: KafkaCoordinator) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while kafka.ask(FindCoordinatorRequest(key="first")).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    while kafka.ask(StreamsGroupDescribeRequest(group_ids=["first"])).groups[0].error_code != _NOT_FOUND:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def main(class_path: str) -> None:
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = {name: str(value) for name, value in SETTINGS.items()} | {"auto.create.topics.enable": "false"}
        with ApacheKafka(class_path, Path(folder), settings=settings) as kafka:
            _wait_coordinator(KafkaCoordinator(kafka.bootstrap, "first"))
            for number, scenario in enumerate(SCENARIOS):
                group_id = f"counting{number:02}"
                members = Members(KafkaCoordinator(kafka.bootstrap, group_id), group_id)
                scenario(members)
                told[scenario.__name__] = members.finish()
    path = Path(__file__).with_name("streams.json")
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
