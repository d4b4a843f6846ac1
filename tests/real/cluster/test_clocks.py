"""Wall clocks that jump an hour, of one node and of all, forwards and back, while clients work.

The clock of a node is libfaketime's: a file says how far it is off, and is read again within a second. The monotonic
clock runs on, as it does when an operator or a time server sets the other one. The clients' clocks are right.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.nodes import NODE_IDS, Nodes
from tests.parts import miss_part, need_program

from .observe import assert_replicas_equal, create_topic, partitions_of, quorum_of, wait_in_sync
from .traffic import CLIENT, DEADLINE_S, Traffic
from .work import Work, working

PARTITIONS = 3
TOPIC = "clocks"
OTHER = "clocks-one"
HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
# How long each jump is watched: longer than the sessions of members and of brokers.
WATCHED_S = 12.0
# A busy machine pauses by itself; a clock that cost a session would show as a change of leaders too.
PAUSE_MAX_S = 10.0

SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Records of an hour ahead are taken, and ones of an hour ago are young.
TIMES = {"retention.ms": str(2 * HOUR_MS), "message.timestamp.after.max.ms": str(2 * HOUR_MS)}

pytestmark = pytest.mark.long


class Clocks(Nodes):
    def __init__(self, folder: Path, library: Path) -> None:
        super().__init__(folder, lambda _: SETTINGS)
        self._library = library
        for node_id in NODE_IDS:
            self.set(node_id, 0)

    def set(self, node_id: int, ahead_s: int) -> None:
        """How far ahead of the time the node's clock is; within a second it is so."""
        self._clock(node_id).write_text(f"{ahead_s:+d}\n")

    def launcher(self, node_id: int) -> list[str]:
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"FAKETIME_TIMESTAMP_FILE={self._clock(node_id)}",
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "NO_FAKE_STAT=1",
        ]

    def _clock(self, node_id: int) -> Path:
        return self.folder / f"clock-{node_id}"


def libfaketime() -> Path:
    need_program("faketime")
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        miss_part("libfaketime is not where Debian has it")
    return library


@pytest.fixture
def clocks(tmp_path: Path) -> Iterator[Clocks]:
    with Clocks(tmp_path, libfaketime()) as clocks:
        yield clocks


def state_of(bootstrap: str) -> tuple[object, ...]:
    """What no clock may change: leaders, their epochs, who is in sync, the epoch of the quorum."""
    partitions = {
        (topic, index): (each.leader_id, each.leader_epoch, sorted(each.isr))
        for topic in (TOPIC, OTHER, "__consumer_offsets", "__transaction_state")
        for index, each in partitions_of(bootstrap, topic).items()
    }
    return partitions, quorum_of(bootstrap).leader_epoch


def jump(clocks: Clocks, nodes: tuple[int, ...], ahead_s: int, works: list[Work], traffic: Traffic) -> None:
    before = state_of(clocks.bootstrap)
    traffic.begin_gap()
    for work in works:
        work.begin()
    for node_id in nodes:
        clocks.set(node_id, ahead_s)
    time.sleep(WATCHED_S)
    traffic.wait_acked(10)
    told = ", ".join([*map(str, works), f"acks=all {traffic.longest_gap_s():.2f} s"])
    print(f"clocks of {nodes} {ahead_s:+d} s, longest pauses: {told}")
    assert [work.failure for work in works] == [None] * len(works)
    assert max(traffic.longest_gap_s(), *(work.pause_s for work in works)) < PAUSE_MAX_S, told
    assert state_of(clocks.bootstrap) == before


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_jumps_an_hour(clocks: Clocks, ahead_s: int):
    for topic in (TOPIC, OTHER):
        create_topic(clocks.bootstrap, topic, PARTITIONS, **TIMES)
        wait_in_sync(clocks.bootstrap, topic)
    traffic = Traffic(clocks.bootstrap, TOPIC, PARTITIONS, records_per_second=200)
    traffic.wait_acked(100)
    active = quorum_of(clocks.bootstrap).leader_id
    with working(clocks.bootstrap, OTHER) as works:
        # Open for the whole test, which is shorter than transaction.timeout.ms.
        patient = Producer({**CLIENT, "bootstrap.servers": clocks.bootstrap, "transactional.id": "patient"})
        patient.init_transactions(DEADLINE_S)
        patient.begin_transaction()
        patient.produce(OTHER, b"patient", partition=0)
        assert patient.flush(DEADLINE_S) == 0
        jump(clocks, (active,), ahead_s, works, traffic)
        jump(clocks, NODE_IDS, ahead_s, works, traffic)
        jump(clocks, NODE_IDS, 0, works, traffic)
        patient.commit_transaction(DEADLINE_S)
    traffic.finish()
    traffic.check()
    check_other(clocks.bootstrap)
    for topic in (TOPIC, OTHER):
        assert_replicas_equal(str(clocks.folder), clocks.bootstrap, topic)


def check_other(bootstrap: str) -> None:
    """What the patient transaction wrote is there, and retention, which looks twice a second, found nothing old."""
    consumer = Consumer({**CLIENT, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(OTHER, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + DEADLINE_S
        while (message := consumer.poll(1.0)) is None or message.value() != b"patient":
            assert time.monotonic() < deadline, "what the transaction wrote is not there"
        watermarks = [consumer.get_watermark_offsets(TopicPartition(OTHER, index)) for index in range(PARTITIONS)]
        assert [low for low, _ in watermarks] == [0] * PARTITIONS
    finally:
        consumer.close()
