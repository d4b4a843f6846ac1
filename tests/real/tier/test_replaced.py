"""A broker that is replaced copies the local part of its logs alone; what lies in the store is served by it at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.testing import Cluster
from tests.real.tier.topics import QUICK, create, fill, local_start, read, wait, wait_cold
from tests.stores import Way, moto, settings

COUNT = 2000


def in_sync(bootstrap: str) -> list[int]:
    partition = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=30).topics["t"].partitions[0]
    return sorted(partition.isrs)


def leader_of(bootstrap: str) -> int:
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=30).topics["t"].partitions[0].leader


@pytest.mark.long
def test_a_replaced_broker_begins_after_the_copies_and_leads_with_them() -> None:
    with moto() as address, Way(address) as way, Cluster(QUICK | settings(way.address)) as cluster:
        create(cluster.bootstrap)
        fill(cluster.bootstrap, range(COUNT))
        folders = {each: Path(cluster.data) / f"broker-{each}" for each in cluster.broker_ids}
        for folder in folders.values():
            wait_cold(folder / "t-0", COUNT * 8 // 10)
        other = next(each for each in folders if each != leader_of(cluster.bootstrap))
        cluster.kill(other)
        shutil.rmtree(folders[other])
        way.delay_s = 0.03
        cluster.start(other)
        wait(lambda: len(in_sync(cluster.bootstrap)) == 3, "it is in sync")
        assert local_start(folders[other] / "t-0") >= COUNT * 7 // 10, "what lies in the store was not copied"
        # It alone, with a store that fails now and then: every record is there, from the first on.
        for each in folders:
            if each != other:
                cluster.stop(each)
        wait(lambda: leader_of(cluster.bootstrap) == other, "it leads")
        way.error_share = way.cut_share = 0.1
        assert read(cluster.bootstrap, COUNT) == list(range(COUNT))
        assert way.refused + way.cut > 0
