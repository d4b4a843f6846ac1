"""Three nodes on a machine without CPU to spare: `python -m bench.starved --help`.

Tailrace and Apache Kafka, one after the other, in the same command: combined nodes, a topic of many partitions with
three replicas, and a producer that writes 20 records a second with acks=all to twelve of the partitions. Meanwhile

    loops    processes do nothing but turn, each with a higher priority than the nodes
    slices   one process at a time, at random, is stopped for 3 s and goes on for 1 s (SIGSTOP, SIGCONT)
    stops    one node is stopped for 5 s, again and again

It prints how many records were acknowledged, how late, and how often leaders and the epoch of the quorum changed: as
told by the nodes themselves before and after. Nothing is judged here. Runs on loopback; needs root for priorities above
the usual one (without it the loops have the same as the nodes).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.versus.processes import Rival, Running, receive
from bench.versus.rivals import KAFKA, TAILRACE
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.quorum import DescribeQuorumRequest
from tailrace.wire.frame import decode_response, encode_request

_TOPIC = "work"
_WRITTEN_PARTITIONS = 12
_RECORDS_PER_SECOND = 20
_NODES = 3
_VALUE = b"x" * 100
# How long a record may take before the client gives it up, and the run waits for the last ones.
_DELIVERY_SECONDS = 200
_ANSWER_SECONDS = 60.0
# Before: long enough, and fast enough, for a JVM to compile what it does all the time.
_WARM_SECONDS = 60.0
_WARM_RECORDS_PER_SECOND = 200
_SLICE_SECONDS = 3.0, 1.0
_STOP_SECONDS = 5.0
_PAUSE_SECONDS = 10.0
_RIVALS = {"tailrace": TAILRACE, "kafka": KAFKA}


class State(NamedTuple):
    """What the nodes tell of elections so far."""

    quorum_epoch: int
    leader_epochs: int  # The sum over all partitions: each change of a leader adds one.


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.starved", description=__doc__.splitlines()[0])
    parser.add_argument("rivals", nargs="*", metavar="RIVAL", help=f"of {', '.join(_RIVALS)}; both without one")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--loops", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-seconds", type=float, default=_WARM_SECONDS, help="written before anything is measured")
    parser.add_argument("--fault", choices=("none", "slices", "stops"), default="none")
    parser.add_argument("--loop-nice", type=int, default=-5, help="the priority of the loops")
    parser.add_argument("--node-nice", type=int, default=0, help="that of the nodes")
    options = parser.parse_args()
    # Whoever ends the run ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if unknown := set(options.rivals) - set(_RIVALS):
        parser.error(f"no rival is called {', '.join(sorted(unknown))}; there are {', '.join(_RIVALS)}")
    for name in options.rivals or _RIVALS:
        rival = _RIVALS[name]
        if rival.missing():
            print(f"{rival.name}: {rival.missing()}")
            continue
        print(f"{rival.name}: {measure(rival, options)}", flush=True)


def measure(rival: Rival, options: argparse.Namespace) -> str:
    with rival.running(_NODES, {"auto.create.topics.enable": "false"}) as running:
        for process in running.brokers.values():
            _set_priority(process.pid, options.node_nice)
        _create(running, options.partitions)
        _write(running, options.warm_seconds, _WARM_RECORDS_PER_SECOND)
        before = _state(running)
        began = time.perf_counter()
        with _busy_loops(options.loops, options.loop_nice), _faults(options.fault, running):
            written = _write(running, options.seconds, _RECORDS_PER_SECOND)
        took_seconds = time.perf_counter() - began
        after = _state(running)
    return (
        f"{options.partitions} partitions, {options.loops} loops, {options.fault}: {written}; "
        f"{after.leader_epochs - before.leader_epochs} leaders changed, "
        f"{after.quorum_epoch - before.quorum_epoch} epochs of the quorum in {took_seconds:.0f} s"
    )


def _create(running: Running, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    topic = NewTopic(_TOPIC, num_partitions=partitions, replication_factor=_NODES)
    for future in admin.create_topics([topic], request_timeout=_ANSWER_SECONDS).values():
        future.result()
    deadline = time.perf_counter() + _ANSWER_SECONDS
    while any(len(each.isr_nodes) < _NODES for each in _partitions(running)):
        if time.perf_counter() > deadline:
            raise TimeoutError("not all replicas are in sync")
        time.sleep(1.0)


# ---- the producer


def _write(running: Running, seconds: float, records_per_second: int) -> str:
    """What came of it, in words."""
    producer = Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "delivery.timeout.ms": _DELIVERY_SECONDS * 1000,
            "log_level": 0,
        }
    )
    late_ms: list[float] = []
    failed: list[str] = []

    def note(sent: float) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                late_ms.append((time.perf_counter() - sent) * 1000)
            else:
                failed.append(error.name())

        return on_delivery

    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        producer.produce(_TOPIC, _VALUE, partition=count % _WRITTEN_PARTITIONS, on_delivery=note(time.perf_counter()))
        count += 1
        while (left := began + count / records_per_second - time.perf_counter()) > 0:
            producer.poll(left)
        producer.poll(0)
    producer.flush(_DELIVERY_SECONDS + 10)
    late_ms.sort()
    told = f"{len(late_ms)} of {count} acknowledged"
    if late_ms:
        median, high = late_ms[len(late_ms) // 2], late_ms[int(len(late_ms) * 0.99)]
        told += f", median {median:.0f} ms, p99 {high:.0f} ms, worst {late_ms[-1]:.0f} ms"
    return told + (f", failed: {', '.join(sorted(set(failed)))}" if failed else "")


# ---- what goes wrong


@contextmanager
def _busy_loops(count: int, priority: int) -> Iterator[None]:
    command = ["sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        for loop in loops:
            _set_priority(loop.pid, priority)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _set_priority(pid: int, priority: int) -> None:
    """Of the process, and of its session: where the kernel shares the CPU among sessions, only that counts."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, priority)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as file:
        file.write(str(priority))


@contextmanager
def _faults(kind: str, running: Running) -> Iterator[None]:
    pids = [process.pid for process in running.brokers.values()]
    done = threading.Event()

    def stop_for(pid: int, stopped_seconds: float, then_seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        done.wait(stopped_seconds)
        os.kill(pid, signal.SIGCONT)
        done.wait(then_seconds)

    def disturb() -> None:
        chance = random.Random(1)  # The same for both.
        while not done.is_set():
            if kind == "slices":
                stop_for(chance.choice(pids), *_SLICE_SECONDS)
            else:
                stop_for(pids[0], _STOP_SECONDS, _PAUSE_SECONDS)

    thread = threading.Thread(target=disturb) if kind != "none" else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread is not None:
            thread.join()


# ---- what the nodes tell


def _state(running: Running) -> State:
    quorum = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name=CLUSTER_METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    epoch = _ask(running, quorum, 2).topics[0].partitions[0].leader_epoch
    return State(epoch, sum(each.leader_epoch for each in _partitions(running)))


def _partitions(running: Running) -> list[Any]:
    topic = MetadataRequest.MetadataRequestTopic(name=_TOPIC)
    return list(_ask(running, MetadataRequest(topics=[topic]), 12).topics[0].partitions)


def _ask(running: Running, request: Any, version: int) -> Any:
    """Of any node that answers."""
    failure: Exception | None = None
    for address in running.addresses.values():
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.sendall(b"".join(map(bytes, encode_request(request.api_key, version, 1, "bench", request))))
                answer = receive(connection, int.from_bytes(receive(connection, 4), "big"))
                return decode_response(request.api_key, version, answer)[1]
        except (OSError, EOFError) as error:
            failure = error
    raise TimeoutError("no node answers") from failure


if __name__ == "__main__":
    main()
