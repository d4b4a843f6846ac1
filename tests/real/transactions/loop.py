"""A consume-transform-produce loop of several processes over a cluster that is being hurt, and its account."""

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition

from .worker import CLIENT, FATAL

# Between the defaults and the low-latency profile: a dead broker is missed within seconds, and a machine on which
# processes wait for their turn for half a second is borne.
SETTINGS = {
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 2500,
    "controller.quorum.election.timeout.ms": 800,
    "controller.quorum.fetch.timeout.ms": 1500,
    "replica.fetch.backoff.ms": 50,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1000,
}
ROOT = Path(__file__).parents[3]
WAIT_S = 90.0
PARTITIONS = 4


class Loop:
    """Workers that come back when they die, and a writer of numbered records, `partition:number`."""

    def __init__(self, bootstrap: str, *, source: str = "input", target: str = "output", workers: int = 2) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.target = target
        self.written = [0] * PARTITIONS
        self._workers = [_Process(bootstrap, source, target, index) for index in range(workers)]
        self._stop = threading.Event()
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        for worker in self._workers:
            worker.kill()

    def kill_worker(self, index: int) -> None:
        """It comes back by itself."""
        self._workers[index].kill()

    def wait_for_more(self, records: int, wait_s: float = WAIT_S) -> None:
        """Until so many more are committed in the output than now."""
        wanted = self._visible() + records
        deadline = time.monotonic() + wait_s
        while self._visible() < wanted:
            self._revive()
            assert time.monotonic() < deadline, f"{self._visible()} of {wanted}: {self.story()}"
            time.sleep(0.05)

    def finish(self) -> None:
        """No more is written; each record of the input must be in the output, once and in order."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert self._failed == []
        deadline = time.monotonic() + WAIT_S
        total = sum(self.written)
        read = _Committed(self.bootstrap, self.target)
        while len(read.values) < total and time.monotonic() < deadline:
            self._revive()
            read.poll(0.2)
        read.poll(0.5)
        read.close()
        doubled = [value for value, count in Counter(read.values).items() if count > 1]
        assert doubled == [], f"{len(doubled)} records have had their effect twice: {self.story()}"
        missing = {b"%d:%d" % (index, number) for index in range(PARTITIONS) for number in range(self.written[index])}
        missing -= set(read.values)
        assert not missing, f"{len(missing)} of {total} records are missing: {sorted(missing)[:5]} {self.story()}"
        for index in range(PARTITIONS):
            numbers = [int(value.partition(b":")[2]) for value in read.values if value.startswith(b"%d:" % index)]
            assert numbers == sorted(numbers), "in the order of the input"

    def story(self) -> str:
        return " | ".join(worker.story() for worker in self._workers)

    def _revive(self) -> None:
        for worker in self._workers:
            worker.revive()

    def _visible(self) -> int:
        """The last stable offsets, markers and aborted records included: they rise only with committed ones behind."""
        consumer = Consumer({**CLIENT, "bootstrap.servers": self.bootstrap, "group.id": "n", **_COMMITTED})
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(self.target, index), timeout=10)[1]
                for index in range(PARTITIONS)
            )
        except Exception:
            return 0
        finally:
            consumer.close()

    def _write(self) -> None:
        producer = Producer(
            {**CLIENT, "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 2}
        )

        def told(error: object, _message: object) -> None:
            if error is not None:
                self._failed.append(str(error))

        while not self._stop.is_set():
            for index in range(PARTITIONS):
                value = b"%d:%d" % (index, self.written[index])
                producer.produce(self.source, value, partition=index, on_delivery=told)
                self.written[index] += 1
            producer.poll(0)
            time.sleep(0.004)
        if producer.flush(WAIT_S) != 0:
            self._failed.append("the input could not be written in time")


_COMMITTED: dict[str, object] = {"isolation.level": "read_committed", "enable.auto.commit": False}


class _Committed:
    """All that a read_committed consumer sees, in the order of each partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {**CLIENT, "bootstrap.servers": bootstrap, "group.id": "n", "fetch.wait.max.ms": 50, **_COMMITTED}
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def poll(self, seconds: float) -> None:
        for message in self._consumer.consume(5000, seconds):
            if message.error() is None:
                self.values.append(message.value() or b"")

    def close(self) -> None:
        self._consumer.close()


class _Process:
    def __init__(self, bootstrap: str, source: str, target: str, index: int) -> None:
        module = "tests.real.transactions.worker"
        self._command = [sys.executable, "-m", module, bootstrap, "loop", source, target, f"worker-{index}"]
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            text=True,
        )
        thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def revive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                assert self._process.returncode in (FATAL, -9), self.story()
                self._reap()
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        self._threads.clear()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def story(self) -> str:
        return f"{self._command[-1]}: {self._lines[-6:]}"

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line.strip())
