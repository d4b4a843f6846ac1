"""A mirror of a topic of which most lies in a store alone, that has remote storage itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tailrace.cli import main
from tailrace.testing import Broker
from tests.real.tier.topics import DEADLINE_S, QUICK, TOPIC, create, fill, read, wait, wait_cold

COUNT, COMMITTED = 2_000, 100


def settings(tmp_path: Path, name: str) -> dict[str, str]:
    url = f"file://{tmp_path}/{name}-store"
    return QUICK | {"remote.log.storage.system.enable": "true", "remote.log.storage.url": url}


def committed(admin: AdminClient) -> int:
    asked = ConsumerGroupTopicPartitions("billing", [TopicPartition("t", 0)])
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    return future.result(DEADLINE_S).topic_partitions[0].offset


@pytest.mark.long
def test_what_is_cold_on_both_sides(tmp_path: Path) -> None:
    with (
        Broker(settings(tmp_path, "source"), data=tmp_path / "source") as source,
        Broker(settings(tmp_path, "here"), data=tmp_path / "here") as here,
    ):
        create(source.bootstrap, replicas=1)
        fill(source.bootstrap, range(COUNT))
        wait_cold(tmp_path / "source" / "t-0", COUNT * 8 // 10)
        at_source = AdminClient({"bootstrap.servers": source.bootstrap})
        groups = [ConsumerGroupTopicPartitions("billing", [TopicPartition("t", 0, COMMITTED)])]
        (future,) = at_source.alter_consumer_group_offsets(groups).values()
        future.result(DEADLINE_S)

        words = ("--source", source.bootstrap, "--set", "sync.interval.ms=300")
        assert main(["mirror", "create", "dc1", *words, "--bootstrap", here.bootstrap]) == 0
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        wait(lambda: "t" in admin.list_topics(timeout=DEADLINE_S).topics, "the topic is mirrored")
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in TOPIC.items()
        ]
        altered = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=changes)
        admin.incremental_alter_configs([altered])[altered].result(DEADLINE_S)
        fill(source.bootstrap, range(COUNT, 2 * COUNT))
        wait_cold(tmp_path / "here" / "t-0", 2 * COUNT * 8 // 10)
        wait(lambda: committed(admin) == COMMITTED, "the group goes on where it was")

        assert main(["mirror", "failover", "dc1", "--bootstrap", here.bootstrap]) == 0
        assert read(here.bootstrap, 2 * COUNT) == list(range(2 * COUNT))
        assert committed(admin) == COMMITTED
