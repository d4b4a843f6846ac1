"""`python -m bench.balancing`: what a plan of the balancer takes, and what its moves cost the clients.

plan      50 brokers, 10,000 partitions with three replicas, skewed in every resource: seconds and memory of a process
          that plans and nothing else
clients   20,000 messages of 100 bytes a second, acks=all, to three brokers on this machine: the 99th percentile
          from produce() to its confirmation, in alternating rounds without moves and with `topic alter
          --replication-factor` at 10 MB/s
"""

import json
import resource
import statistics
import subprocess
import sys
import threading
import time

from confluent_kafka import Producer

from tailrace.balance.plan.decide import decide_plan
from tailrace.balance.plan.picture import BrokerState, Goals, PartitionState, Picture, Resource, Wish
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.random import SimRandom
from tailrace.testing import Cluster

BROKERS, PARTITIONS, TOPICS = 50, 10_000, 200
RATE, RECORD_BYTES = 20_000, 100
ROUNDS, ROUND_SECONDS = 5, 6.0
THROTTLE = "10MB/s"
BULK_PARTITIONS, BULK_BYTES = 6, 300_000_000
_TICK_SECONDS = 0.005


def large_picture() -> Picture:
    """Half of all replicas are on a third of the brokers, and nothing is of the same size."""
    random = SimRandom(1)
    states = []
    for number in range(PARTITIONS):
        held: list[int] = []
        while len(held) < 3:
            node = 1 + random.randrange(BROKERS // 3 if random.random() < 0.5 else BROKERS)
            held += [node] if node not in held else []
        scale = (0.2 + random.random()) ** 3
        states.append(
            PartitionState(
                TopicPartition(f"topic-{number % TOPICS}", PartitionIndex(number // TOPICS)),
                tuple(held),
                size_bytes=scale * 1e9,
                in_rate=scale * 1e5 * (0.5 + random.random()),
                out_rate=scale * 3e5 * random.random(),
                leader_loop=scale * 0.001,
                follower_loop=scale * 0.0003,
            )
        )
    room = 3 * sum(state.size_bytes for state in states) / BROKERS / 0.5
    nodes = [BrokerState(1 + each, f"rack-{each % 3}", capacity={Resource.DISK: room}) for each in range(BROKERS)]
    return Picture(nodes, states)


def plan() -> dict[str, float]:
    picture = large_picture()
    began, began_cpu = time.monotonic(), time.process_time()
    found = decide_plan(picture, Goals(), Wish())
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - began_cpu
    assert not found.problems, found.problems
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
        "moves": len(found.moves),
        "worst_before": round(max(spread.worst for spread in found.before), 3),
        "worst_after": round(max(spread.worst for spread in found.after), 3),
    }


class Load:
    """Messages at a steady rate, and how long each took."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
        self._taken: list[float] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def measure(self, seconds: float) -> float:
        """The 99th percentile, in milliseconds."""
        self._taken = taken = []
        time.sleep(seconds)
        self._taken = []
        assert len(taken) > 0.9 * RATE * seconds, f"only {len(taken)} messages in {seconds} s"
        return 1000 * sorted(taken)[int(0.99 * len(taken))]

    def end(self) -> None:
        self._is_over = True
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        value, next_tick = b"x" * RECORD_BYTES, time.monotonic()
        while not self._is_over:
            for _ in range(round(RATE * _TICK_SECONDS)):
                self._produce(value)
            next_tick += _TICK_SECONDS
            self._producer.poll(max(0.0, next_tick - time.monotonic()))

    def _produce(self, value: bytes) -> None:
        began = time.monotonic()

        def confirmed(error: object, _message: object) -> None:
            assert error is None, error
            self._taken.append(time.monotonic() - began)

        self._producer.produce("load", value, on_delivery=confirmed)


def clients() -> dict[str, object]:
    with Cluster(brokers=3) as cluster:
        _tailrace(cluster, "topic", "create", "load", "--partitions", "6")
        bulk = ("bulk", "--partitions", str(BULK_PARTITIONS), "--replication-factor", "1")
        _tailrace(cluster, "topic", "create", *bulk, "--set", "min.insync.replicas=1")
        _fill(cluster.bootstrap)
        load = Load(cluster.bootstrap)
        load.measure(3.0)
        quiet, moving = [], []
        for _ in range(ROUNDS):
            quiet.append(load.measure(ROUND_SECONDS))
            command = _command(cluster, "topic", "alter", "bulk", "--replication-factor", "2", "--throttle", THROTTLE)
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(2.0)  # It looks, and begins.
            moving.append(load.measure(ROUND_SECONDS))
            assert running.poll() is None, "the moves were over before the round"
            assert running.wait(120) == 0
            _tailrace(cluster, "topic", "alter", "bulk", "--replication-factor", "1")
            time.sleep(1.0)
        load.end()
    return {
        "p99_ms_without": [round(each, 1) for each in quiet],
        "p99_ms_with": [round(each, 1) for each in moving],
        "ratio_of_medians": round(statistics.median(moving) / statistics.median(quiet), 2),
    }


def _fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    value = b"x" * 50_000
    for number in range(BULK_BYTES // len(value)):
        producer.produce("bulk", value, partition=number % BULK_PARTITIONS)
        if number % 200 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def _command(cluster: Cluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", *words, "--bootstrap", cluster.bootstrap]


def _tailrace(cluster: Cluster, *words: str) -> None:
    subprocess.run(_command(cluster, *words), check=True, stdout=subprocess.DEVNULL, timeout=120)


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["plan", "clients"]
    for name, measure in (("plan", plan), ("clients", clients)):
        if name in chosen:
            print(json.dumps({name: measure()}), flush=True)
