"""Processes of an application that are killed while they work, and the account of it, by the history checker.

What must be written follows from the numbers of the orders alone. It goes into the history as what the application has
sent; what a reader of committed records finds in the end goes in beside it. The checker then tells of what is missing,
what is there twice, and what nobody should have written.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.verify.recorder import Recorder
from tailrace.verify.report import verify

from .billing import BILLS, DEAD, ORDERS, RETRIES, failures_of

ROOT = Path(__file__).parents[3]
WAIT_S = 90.0
PARTITIONS = 3
TARGETS = (BILLS, DEAD, *RETRIES)
CLIENT = {"log_level": 2, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
# A dead member of a group is missed within seconds.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.min.session.timeout.ms": 1000,
}


class Trial:
    """`feed` it, hurt it, and `judge` at the end."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        workers: int = 2,
        seed: int = 1,
        deaths: Sequence[str] = (),
        is_shared: bool = False,
        protocol: str = "consumer",
    ) -> None:
        """`deaths` are points of the application at which one process after the other ends its life; more words after
        the point are processes to kill there instead, of which 0 is itself."""
        self._variables = {"TRIAL_PROTOCOL": protocol}
        self._mode = ["shared"] if is_shared else []
        self.bootstrap = bootstrap
        self.random = random.Random(seed)
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        self._number = 0
        self._producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._lines: list[str] = []
        self.deaths: Counter[str] = Counter()
        self._coming = list(deaths)

    def __enter__(self) -> Self:
        admin = AdminClient({**CLIENT, "bootstrap.servers": self.bootstrap})
        topics = [NewTopic(ORDERS, PARTITIONS, 1), NewTopic(BILLS, PARTITIONS, 1)]
        for created in admin.create_topics(topics).values():
            created.result(WAIT_S)
        self.revive()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for index in range(len(self._workers)):
            self.kill(index)

    # --- what is done to it

    def feed(self, count: int, *, is_waited_for: bool = True) -> None:
        for _ in range(count):
            self._producer.produce(ORDERS, str(self._number), key=str(self._number % 17))
            self._number += 1
        assert not is_waited_for or self._producer.flush(WAIT_S) == 0

    def revive(self) -> None:
        """Whoever has died comes back."""
        for index, worker in enumerate(self._workers):
            if worker is None or worker.poll() is not None:
                if worker is not None and worker.returncode == -signal.SIGKILL:
                    self.deaths["killed itself"] += 1
                death = self._mode
                if self._coming:
                    point, *processes = self._coming.pop(0).split()
                    death = [point, "4", *processes]
                with self._log(index).open("ab") as log:
                    words = [sys.executable, "-m", "tests.real.kit.billing", self.bootstrap, *death]
                    path = os.pathsep.join((str(ROOT), *sys.path))
                    environment = {**os.environ, "PYTHONPATH": path, **self._variables}
                    self._workers[index] = subprocess.Popen(words, stdout=log, stderr=log, cwd=ROOT, env=environment)

    def plan(self, death: str) -> None:
        """Of a worker that is killed now, for the one that comes in its place."""
        self._coming.append(death)
        self.kill(0)
        self.revive()

    def kill(self, index: int) -> None:
        worker, self._workers[index] = self._workers[index], None
        if worker is not None:
            self.deaths["killed"] += 1
            worker.kill()
            worker.wait(WAIT_S)

    def stop(self, index: int) -> None:
        """As a service manager does; the process must end by itself, and well."""
        worker, self._workers[index] = self._workers[index], None
        if worker is not None and worker.poll() is None:
            self.deaths["stopped"] += 1
            worker.terminate()
            assert worker.wait(WAIT_S) in (0, -signal.SIGTERM), self.story()

    def freeze(self, index: int, seconds: float) -> None:
        """It does not know that time has passed, and that others have its partitions."""
        worker = self._workers[index]
        if worker is not None and worker.poll() is None:
            self.deaths["frozen"] += 1
            worker.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            worker.send_signal(signal.SIGCONT)

    def wait_written(self, share: float) -> None:
        """Until that share of all that must be written in the end stands in the topics."""
        wanted = sum(len(self.expected(topic)) for topic in TARGETS) * share
        self._wait(lambda: sum(map(len, self._read_all().values())), wanted)

    def _wait(self, count: Callable[[], int], wanted: float) -> None:
        deadline = time.monotonic() + WAIT_S
        while (found := count()) < wanted:
            self.revive()
            assert time.monotonic() < deadline, f"{found} of {wanted}: {self.story()}"
            time.sleep(0.2)

    # --- what must come of it

    def expected(self, topic: str) -> list[str]:
        at_least = {BILLS: 0, DEAD: len(RETRIES) + 1} | {name: level for level, name in enumerate(RETRIES, 1)}
        failing = {number: failures_of(number) for number in range(self._number)}
        if topic == BILLS:
            return [str(number) for number, failures in failing.items() if failures <= len(RETRIES)]
        return [str(number) for number, failures in failing.items() if failures >= at_least[topic]]

    def judge(self) -> None:
        self.wait_written(1)
        time.sleep(1)  # What is there twice may come now.
        history: list[str] = []
        recorder = Recorder(history.append)
        application = recorder.process("application")
        for topic in TARGETS:
            for value in self.expected(topic):
                application.send(None, f"{topic}:{value}").ok()
        reader = recorder.process("reader", isolation="read_committed")
        for topic, records in self._read_all().items():
            partitions = sorted({f"{topic}-{partition}" for partition in range(PARTITIONS)})
            reader.assigned(partitions)
            reader.polled((f"{topic}-{partition}", offset, f"{topic}:{value}") for partition, offset, value in records)
        reader.drained()
        report = verify(history, ())
        anomalies = [finding.sentence for finding in report.findings.anomalies()]
        assert report.is_clean, f"{anomalies[:10]} {self.story()}"
        assert {topic: len(records) for topic, records in self._read_all().items()} == {
            topic: len(self.expected(topic)) for topic in TARGETS
        }

    def judge_at_least_once(self) -> None:
        """Each order is billed or a dead letter, and nothing is there that should not; some may be there twice. A good
        order may be a dead letter if it was in the hands of dying workers again and again."""
        orders = {str(number) for number in range(self._number)}

        def settled() -> set[str]:
            return {value for topic in (BILLS, DEAD) for _, _, value in self._read_all()[topic]}

        self._wait(lambda: len(settled()), len(orders))
        values = {topic: {value for _, _, value in records} for topic, records in self._read_all().items()}
        assert settled() == orders, self.story()
        assert values[BILLS] <= set(self.expected(BILLS)), self.story()
        assert values[DEAD] >= set(self.expected(DEAD)), self.story()
        for level in RETRIES:
            assert values[level] <= set(self.expected(level)), self.story()

    def story(self) -> str:
        logs = [self._log(index).read_text(errors="replace")[-1500:] for index in range(len(self._workers))]
        return "\n".join([f"deaths: {dict(self.deaths)}", *logs])

    def _read_all(self) -> dict[str, Sequence[tuple[int, int, str]]]:
        """(partition, offset, value) of everything that is committed."""
        found: dict[str, list[tuple[int, int, str]]] = {topic: [] for topic in TARGETS}
        consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self.bootstrap,
                "group.id": "auditor",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            known = consumer.list_topics(timeout=WAIT_S).topics
            there = [topic for topic in TARGETS if topic in known]
            places = [TopicPartition(topic, index, 0) for topic in there for index in range(PARTITIONS)]
            consumer.assign(places)
            deadline, ended = time.monotonic() + WAIT_S, set()
            while len(ended) < len(places):
                assert time.monotonic() < deadline, self.story()
                for message in consumer.consume(500, 0.2):
                    where = message.topic(), message.partition()
                    if message.error() is not None:
                        ended.add(where)
                    else:
                        found[message.topic()].append((message.partition(), message.offset(), message.value().decode()))
        finally:
            consumer.close()
        return found

    def _log(self, index: int) -> Path:
        return self._folder / f"worker-{index}.log"
