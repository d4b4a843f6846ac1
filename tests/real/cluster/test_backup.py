"""A backup is a copy of a stopped cluster's folders, a restore a start from the copy: as docs/deployment.md tells."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.testing import Cluster

from .observe import create_topic, wait_in_sync
from .traffic import Traffic, check_account, read_all

pytestmark = pytest.mark.long

PARTITIONS = 3


def test_what_was_there_at_the_stop_is_there_after_the_restore(tmp_path: Path):
    original, copy = tmp_path / "original", tmp_path / "copy"
    with Cluster(brokers=3, data=original) as cluster:
        create_topic(cluster.bootstrap, "work", PARTITIONS)
        traffic = Traffic(cluster.bootstrap, "work", PARTITIONS, records_per_second=500)
        traffic.wait_acked(500)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("work", 0, 42)], asynchronous=False)
        consumer.close()
        traffic.finish()
        traffic.check()
    shutil.copytree(original, copy)
    # The disaster: nothing of the original is left.
    shutil.rmtree(original)
    with Cluster(brokers=3, data=copy) as cluster:
        wait_in_sync(cluster.bootstrap, "work")
        check_account(traffic.acked, read_all(cluster.bootstrap, "work", PARTITIONS))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
        (committed,) = consumer.committed([TopicPartition("work", 0)], timeout=30)
        consumer.close()
        assert committed.offset == 42
        after = Traffic(cluster.bootstrap, "work", PARTITIONS, records_per_second=500)
        after.wait_acked(100)
        after.finish()
