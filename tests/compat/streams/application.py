"""An application of Kafka Streams (java/WordCount.java) as a process, the lines that it counts, and its counts."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

DEADLINE_S = 120.0
# Groups that settle within tenths of a second, of both protocols.
QUICK: dict[str, str | int | float | bool] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 100,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 200,
    "group.streams.min.session.timeout.ms": 1000,
    "group.streams.session.timeout.ms": 3000,
}
# The application's own: of a classic group it says itself how long a silent member is waited for.
SETTINGS = ("commit.interval.ms=100", "session.timeout.ms=3000", "heartbeat.interval.ms=500")
PARTITIONS = 2


class Application:
    """`command` runs the class. One that is killed leaves its state behind, and begins with it when it is started
    again."""

    def __init__(
        self, command: Sequence[str], topics: Topics, protocol: str, state: Path, *, settings: Sequence[str] = ()
    ) -> None:
        words = (topics.bootstrap, topics.application, protocol, str(state), topics.lines, topics.counts)
        self._words = [*command, *words, *SETTINGS, *settings]
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._said: list[str] = []
        self._has_said = threading.Condition()

    def start(self) -> Self:
        self._said.clear()
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._end()

    def close(self, *, leaves: bool = False) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("leave" if leaves else "")
        self._process.stdin.close()
        assert self._process.wait(DEADLINE_S) == 0
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        assert self._listener is not None
        self._listener.join(DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def wait_tasks(self, active: int, standby: int = 0) -> None:
        """Until these are the numbers of its tasks."""
        self._wait(
            lambda: [each for each in self._said if each.startswith("tasks")][-1:] == [f"tasks {active} {standby}"],
            f"{active} active and {standby} standby tasks",
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._has_said:
            assert self._has_said.wait_for(condition, DEADLINE_S), f"not {what} but {self._said}"

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._has_said:
                self._said.append(line.strip())
                self._has_said.notify_all()


class Topics:
    """Lines and counts. What the counts must be is known from the lines: of each word 1, 2, 3 and so on, none of them
    missing and none twice."""

    def __init__(self, bootstrap: str, application: str, *, replicas: int = 1) -> None:
        self.bootstrap, self.application = bootstrap, application
        self.lines, self.counts = f"{application}-lines", f"{application}-words"
        self._expected: Counter[str] = Counter()
        self._written = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(self.lines, PARTITIONS, replicas), NewTopic(self.counts, 1, replicas)]
        for created in self.admin.create_topics(new).values():
            created.result(DEADLINE_S)

    def write(self, count: int) -> None:
        for number in range(self._written, self._written + count):
            words = ("all", f"seven{number % 7}", f"three{number % 3}")
            self._producer.produce(self.lines, " ".join(words).encode(), partition=number % PARTITIONS)
            self._expected.update(words)
        self._written += count
        assert self._producer.flush(DEADLINE_S) == 0

    def wait_counted(self, *, min_count: int | None = None) -> dict[str, list[int]]:
        """What was counted, once all lines are (or so many words, of however many lines)."""
        total = self._expected.total() if min_count is None else min_count
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.application}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.counts, 0, 0)])
        counts: dict[str, list[int]] = {}
        deadline = time.monotonic() + DEADLINE_S
        try:
            while (found := sum(map(len, counts.values()))) < total:
                assert time.monotonic() < deadline, f"{found} of {total} words were counted"
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    key, value = message.key(), message.value()
                    assert key is not None
                    assert value is not None
                    counts.setdefault(key.decode(), []).append(int(value))
            message = consumer.poll(1.0) if min_count is None else None
            assert message is None or message.error() is not None, "a word was counted twice"
        finally:
            consumer.close()
        return counts

    def expected(self) -> dict[str, list[int]]:
        return {word: list(range(1, count + 1)) for word, count in self._expected.items()}

    @property
    def word_count(self) -> int:
        """Of all lines."""
        return self._expected.total()

    def set_group(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, self.application, incremental_configs=[entry])
        for altered in self.admin.incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)
