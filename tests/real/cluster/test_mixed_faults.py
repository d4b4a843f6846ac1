"""Faults of several kinds at the same time, at random: kill -9, SIGSTOP, clean stops, links that are cut, nodes that
see nobody; some on top of others, so that for a while there is no majority, or one that only just is.

Nothing is demanded of that time. Afterwards everything that was acknowledged is there, once and in order, readers and
a transaction's readers have seen the same, and all replicas are equal.
"""

import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tailrace.testing import LOW_LATENCY
from tests.nodes import NODE_IDS

from .observe import assert_replicas_equal, create_topic, wait_in_sync
from .production import Production
from .traffic import CLIENT, DEADLINE_S, Tail, Traffic, read_all, watermarks

pytestmark = pytest.mark.long

TOPIC, PAIRS = "mixed", "pairs"
PARTITIONS = 3
FAULTS = 40
LINKS = [(1, 2), (1, 3), (2, 3)]


class MortalNodes(Production):
    def process(self, node_id: int) -> subprocess.Popen[str]:
        return self._processes[node_id]

    def start(self, node_id: int) -> None:
        """Without waiting for it: it may need another that is dead."""
        self._start(node_id)

    def wait_ready(self, node_id: int) -> None:
        self._wait_ready(node_id)


class Storm:
    """What is broken at the moment, and what breaks or heals next."""

    def __init__(self, nodes: MortalNodes, seed: int) -> None:
        self._nodes = nodes
        self._chooser = random.Random(seed)
        self._dead: set[int] = set()
        self._paused: set[int] = set()
        self._starting: set[int] = set()
        self._is_cut = False
        self.told: list[str] = []

    def step(self) -> None:
        what = self._chooser.choice(
            ["kill", "kill", "pause", "stop", "cut", "cut", "alone", "heal", "revive", "revive"]
        )
        node = self._chooser.choice(NODE_IDS)
        getattr(self, f"_{what}")(node)
        time.sleep(self._chooser.choice([0.0, 0.05, 0.3, 1.0, 2.5]))

    def end(self) -> None:
        self._heal(0)
        for node in NODE_IDS:
            self._revive(node)
        for node in self._starting:
            self._nodes.wait_ready(node)

    def _kill(self, node: int) -> None:
        if node not in self._dead:
            self._tell(f"kill -9 {node}")
            self._end_process(node, signal.SIGKILL)

    def _stop(self, node: int) -> None:
        if node not in self._dead | self._paused:
            self._tell(f"stop {node}")
            self._end_process(node, signal.SIGTERM)

    def _end_process(self, node: int, how: signal.Signals) -> None:
        process = self._nodes.process(node)
        process.send_signal(how)
        if how is signal.SIGTERM:
            # Without the others it may wait for a controller to take its leaderships away, and is not waited for.
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()
        self._dead.add(node)
        self._paused.discard(node)
        self._starting.discard(node)

    def _pause(self, node: int) -> None:
        if node not in self._dead | self._paused:
            self._tell(f"SIGSTOP {node}")
            self._nodes.process(node).send_signal(signal.SIGSTOP)
            self._paused.add(node)

    def _cut(self, node: int) -> None:
        one, other = LINKS[node - 1]
        self._tell(f"cut {one}-{other}")
        self._nodes.network.cut(one, other)
        self._is_cut = True

    def _alone(self, node: int) -> None:
        self._tell(f"{node} alone")
        self._nodes.network.cut_off(node, [other for other in NODE_IDS if other != node])
        self._is_cut = True

    def _heal(self, _node: int) -> None:
        if self._is_cut:
            self._tell("links healed")
            self._nodes.network.heal()
            self._is_cut = False

    def _revive(self, node: int) -> None:
        if node in self._paused:
            self._tell(f"SIGCONT {node}")
            self._nodes.process(node).send_signal(signal.SIGCONT)
            self._paused.discard(node)
        elif node in self._dead:
            self._tell(f"start {node}")
            self._nodes.start(node)
            self._dead.discard(node)
            self._starting.add(node)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        print(what, flush=True)


class Pairs:
    """Transactions that write the same number to all partitions of a topic; a new producer after each fatal error."""

    def __init__(self, bootstrap: str) -> None:
        self.committed: set[bytes] = set()
        self.count = 0
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), "the transactional producer hangs"

    def _run(self) -> None:
        producer: Producer | None = None
        while not self._stop.is_set():
            value = str(self.count).encode()
            self.count += 1
            try:
                producer = producer or self._producer()
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(PAIRS, value, partition=partition)
                producer.commit_transaction(20)
                self.committed.add(value)
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort() and producer is not None:
                    try:
                        producer.abort_transaction(20)
                        continue
                    except KafkaException:
                        pass
                producer = None

    def _producer(self) -> Producer:
        producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "pairs",
                "linger.ms": 0,
                "socket.timeout.ms": 4000,
            }
        )
        producer.init_transactions(20)
        return producer

    def check(self) -> None:
        """All or nothing, none twice, and all of which the commit was confirmed."""
        seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        consumer = Consumer({**CLIENT, "bootstrap.servers": self._bootstrap, "group.id": "unused"})
        try:
            for partition in range(PARTITIONS):
                seen[partition] = _read(consumer, partition)
        finally:
            consumer.close()
        for values in seen:
            assert len(values) == len(set(values)), "a transaction is there twice"
            assert set(values) == set(seen[0]), "half a transaction"
        assert self.committed <= set(seen[0]), f"lost: {sorted(self.committed - set(seen[0]))[:5]}"


def _read(consumer: Consumer, partition: int) -> list[bytes]:
    """What readers of committed transactions see, up to a marker that is written now."""
    deadline = time.monotonic() + DEADLINE_S
    place = TopicPartition(PAIRS, partition, OFFSET_BEGINNING)
    # At read_committed the end is the last stable offset: every transaction before it is decided.
    _, end = watermarks(consumer, TopicPartition(PAIRS, partition))
    consumer.assign([place])
    values: list[bytes] = []
    while (position := consumer.position([place])[0].offset) < end:
        assert time.monotonic() < deadline, f"read up to {position} of {end}"
        for message in consumer.consume(1000, timeout=0.5):
            value = message.value()
            if message.error() is None and value is not None:
                values.append(value)
    return values


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_faults_of_all_kinds_at_random(tmp_path: Path, seed: int):
    with MortalNodes(tmp_path, dict(LOW_LATENCY)) as nodes:
        for topic in (TOPIC, PAIRS):
            create_topic(nodes.bootstrap, topic, PARTITIONS)
            wait_in_sync(nodes.bootstrap, topic)
        traffic = Traffic(nodes.bootstrap, TOPIC, PARTITIONS, records_per_second=500)
        pairs = Pairs(nodes.bootstrap)
        traffic.wait_acked(100)
        storm = Storm(nodes, seed)
        traffic.begin_gap()
        while len(storm.told) < FAULTS:
            storm.step()
        storm.end()
        healed = time.monotonic()
        traffic.wait_acked(100)
        print(
            f"{len(storm.told)} faults and recoveries, {len(pairs.committed)} of {pairs.count} transactions committed"
        )
        late_s = time.monotonic() - healed
        print(f"acknowledged {late_s:.1f} s after the end; the longest gap was {traffic.longest_gap_s():.1f} s")
        traffic.finish()
        pairs.finish()
        for topic in (TOPIC, PAIRS):
            wait_in_sync(nodes.bootstrap, topic)
        traffic.check()
        pairs.check()
        for topic in (TOPIC, PAIRS):
            assert_replicas_equal(str(nodes.folder), nodes.bootstrap, topic)


def test_clients_between_two_who_do_not_see_each_other(tmp_path: Path):
    """The third is dead, so nobody can be elected: one of the two knows that it may not lead, and the other one goes on
    telling clients that it does. They are sent back and forth for as long as it lasts, and must live through it."""
    with MortalNodes(tmp_path, dict(LOW_LATENCY)) as nodes:
        create_topic(nodes.bootstrap, TOPIC, PARTITIONS)
        wait_in_sync(nodes.bootstrap, TOPIC)
        traffic = Traffic(nodes.bootstrap, TOPIC, PARTITIONS, records_per_second=200)
        readers = [Tail(nodes.bootstrap, TOPIC, PARTITIONS) for _ in range(5)]
        traffic.wait_acked(100)
        for dead, alive in ((1, (2, 3)), (2, (1, 3)), (3, (1, 2))):
            nodes.kill(dead)
            traffic.wait_acked(100)
            nodes.network.cut(*alive)
            time.sleep(8)
            nodes.network.heal()
            traffic.wait_acked(100)
            nodes.process(dead).communicate()
            nodes.start(dead)
            nodes.wait_ready(dead)
            wait_in_sync(nodes.bootstrap, TOPIC)
        traffic.finish()
        traffic.check()
        stored = read_all(nodes.bootstrap, TOPIC, PARTITIONS)
        ends = {partition: offset + 1 for partition, offset in sorted(stored)}
        for reader in readers:
            assert reader.finish(ends) == stored
