"""The same script on Apache Kafka with LocalTieredStorage and on ours: what is answered must be the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.testing import Broker
from tailrace.wire.apis.admin import CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import (
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from tests.apache_kafka import ApacheKafka
from tests.parts import need_jars
from tests.real.groups.asker import Asker
from tests.real.raw import batch

pytestmark = pytest.mark.long

DEADLINE_S = 120.0
BASE_MS = 1_700_000_000_000
# 10,000 records of 1 KB in batches of ten, a second apart from each other; in segments of 1 MiB.
BATCHES, PER_BATCH = 1000, 10
TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
    "retention.ms": "-1",
    "local.retention.ms": "-2",
}
QUICK = {"remote.log.manager.task.interval.ms": "500", "log.retention.check.interval.ms": "500"}
TIMES = {
    "earliest": -2,
    "latest": -1,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest pending upload": -6,
    "time 0": 0,
    "in the tier": BASE_MS + 3_000_500,
    "first of the tier": BASE_MS,
    "here": BASE_MS + 990_000,
    "after the end": BASE_MS + 10_000_000,
}
OUT_OF_RANGE = 1
TOPIC_RESOURCE = 2


@pytest.fixture(scope="module")
def brokers(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    (jar,) = need_jars("tests/compat/java/tier/pom.xml").glob("kafka-storage-*-test.jar")
    of_kafka = QUICK | {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "rsm.config.dir": str(tmp_path_factory.mktemp("kafka-store")),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "log.initial.task.delay.ms": "500",
    }
    ours = QUICK | {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": f"file://{tmp_path_factory.mktemp('store')}",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "log.initial.task.delay.ms": "500",
    }
    class_path = f"{kafka_class_path}:{jar}"
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("kafka")
        kafka = stack.enter_context(ApacheKafka(class_path, Path(folder), settings=of_kafka))
        own = stack.enter_context(Broker(settings=ours))
        yield {"kafka": kafka.bootstrap, "ours": own.bootstrap}


Script = Callable[[Asker, str], object]


def same(brokers: dict[str, str], script: Script, name: str) -> object:
    found = {}
    for broker, address in brokers.items():
        with Asker(address) as asker:
            found[broker] = script(asker, name)
    assert found["ours"] == found["kafka"]
    return found["kafka"]


def create(asker: Asker, name: str, **settings: str) -> tuple[int, str | None]:
    config = CreateTopicsRequest.CreatableTopicConfig
    configs = [config(name=key, value=value) for key, value in settings.items()]
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    answer = asker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0]
    return answer.error_code, answer.error_message


def alter(asker: Asker, name: str, **settings: str) -> tuple[int, str | None]:
    config = IncrementalAlterConfigsRequest.AlterableConfig
    configs = [config(name=key, config_operation=0, value=value) for key, value in settings.items()]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs
    )
    answer = asker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return answer.error_code, answer.error_message


def fill(asker: Asker, name: str) -> None:
    for number in range(BATCHES):
        records = batch(*[b"%08d" % number + b"x" * 992] * PER_BATCH, timestamp_ms=BASE_MS + 1000 * number)
        data = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer = asker.ask(request, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, number * PER_BATCH)


def list_offset(asker: Asker, name: str, timestamp: int) -> tuple[int, int, int, int]:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[asked])
    answer = asker.ask(ListOffsetsRequest(topics=[topic]), 11).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def offsets(asker: Asker, name: str) -> dict[str, tuple[int, int, int, int]]:
    return {what: list_offset(asker, name, timestamp) for what, timestamp in TIMES.items()}


def settled(asker: Asker, name: str, wanted: Sequence[str] = ("earliest local", "latest tiered")) -> object:
    """Once it has not changed for three seconds, with something of what is wanted."""
    deadline = time.monotonic() + DEADLINE_S
    before, since = offsets(asker, name), time.monotonic()
    while time.monotonic() - since < 3 or any(before[each][1] <= 0 for each in wanted):
        assert time.monotonic() < deadline, before
        time.sleep(0.3)
        now = offsets(asker, name)
        if now != before:
            before, since = now, time.monotonic()
    return before


def fetch(asker: Asker, name: str, offset: int) -> tuple[int, bytes]:
    """By its name, until there is something."""
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50_000)
    topic = FetchRequest.FetchTopic(topic=name, partitions=[part])
    request = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    request.session_epoch = -1
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = asker.ask(request, 12).responses[0].partitions[0]
        records = bytes(answer.records or b"")
        if answer.error_code or records:
            # One may give fewer batches than the other.
            return answer.error_code, records[:1000]
        assert time.monotonic() < deadline, f"nothing comes at {offset}"


def test_offsets_and_records_of_both_tiers(brokers: dict[str, str]) -> None:
    def script(asker: Asker, name: str) -> object:
        assert create(asker, name, **TOPIC)[0] == 0
        wait_led(asker, name)
        fill(asker, name)
        told = settled(asker, name)
        return told, [fetch(asker, name, offset) for offset in (0, 5, 1234, 7777, 9999)], fetch(asker, name, 20_000)[0]

    told, *_ = same(brokers, script, "offsets")  # type: ignore[misc]
    assert told["earliest"][1] == 0
    assert 8000 < told["earliest local"][1] < told["latest tiered"][1] < 10_000


def test_retention_of_the_whole_and_deleted_records(brokers: dict[str, str]) -> None:
    def script(asker: Asker, name: str) -> object:
        assert create(asker, name, **TOPIC)[0] == 0
        wait_led(asker, name)
        fill(asker, name)
        settled(asker, name)
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2345)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[part])
        answer = asker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2).topics[0].partitions[0]
        deleted = answer.error_code, answer.low_watermark
        after = settled(asker, name), fetch(asker, name, 2344)[0], fetch(asker, name, 2345)
        shorter = alter(asker, name, **{"retention.bytes": str(4 << 20)})
        deadline = time.monotonic() + DEADLINE_S
        while list_offset(asker, name, -2)[1] == 2345:
            assert time.monotonic() < deadline, "retention is at work"
            time.sleep(0.2)
        told = settled(asker, name)
        return deleted, after, shorter, told, fetch(asker, name, 2345)[0]

    *_, told, code = same(brokers, script, "retention")  # type: ignore[misc]
    assert 5000 < told["earliest"][1] < 7000
    assert code == OUT_OF_RANGE


def test_remote_storage_is_turned_off(brokers: dict[str, str]) -> None:
    def script(asker: Asker, name: str) -> object:
        assert create(asker, name, **TOPIC)[0] == 0
        wait_led(asker, name)
        fill(asker, name)
        settled(asker, name)
        refused = alter(asker, name, **{"remote.storage.enable": "false"})
        done = alter(asker, name, **{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        told = settled(asker, name, wanted=("earliest local",))
        return refused, done, told, fetch(asker, name, 0)[0]

    told = same(brokers, script, "disabled")
    assert told[3] == OUT_OF_RANGE  # type: ignore[index]


CHANGES: list[dict[str, str]] = [
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "delete"},
    {"retention.ms": "1000", "local.retention.ms": "2000"},
    {"retention.bytes": "1000", "local.retention.bytes": "2000"},
    {"retention.ms": "1000", "local.retention.ms": "-1"},
    {"retention.ms": "-1", "local.retention.ms": "-1"},
    {"local.retention.ms": "-3"},
    {"remote.log.copy.disable": "true"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "1000", "retention.ms": "2000"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "1000", "retention.ms": "1000"},
    {"remote.log.delete.on.disable": "true"},
    {"remote.storage.enable": "nonsense"},
]


def test_settings_that_are_refused_and_taken(brokers: dict[str, str]) -> None:
    def script(asker: Asker, name: str) -> object:
        assert create(asker, name, **{"remote.storage.enable": "true"})[0] == 0
        created = [
            create(asker, f"{name}-{number}", **{"remote.storage.enable": "true", **change})
            for number, change in enumerate(CHANGES)
        ]
        altered = [alter(asker, name, **change) for change in CHANGES]
        asker.ask(DeleteTopicsRequest(topic_names=[f"{name}-{number}" for number in range(len(CHANGES))]), 5)
        return list(zip(map(str, CHANGES), created, altered, strict=True))

    same(brokers, script, "settings")


def wait_led(asker: Asker, name: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = asker.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]), 9).topics[0]
        if not found.error_code and found.partitions and not found.partitions[0].error_code:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
