"""Transactional producers and readers of both isolation levels at work, and the history of what they saw."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tailrace.verify import Recorder, Report, verify
from tailrace.verify.recorder import Process, Send

from .loop import PARTITIONS

PRODUCERS = 3
RECORDS = 6
WAIT_S = 60.0
_CALL_S = 20.0
_QUICK = {"log_level": 2, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class History:
    """Each producer is a thread that commits or aborts one transaction after the other over all partitions, and begins
    anew under its id when a call has failed. Two readers follow from the start."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._recorder = Recorder(self._write)
        self._stops = threading.Event()
        self._drains = threading.Event()
        self.ended_count = 0
        self._producers = [threading.Thread(target=self._produce, args=(each,)) for each in range(PRODUCERS)]
        self._readers = [
            threading.Thread(target=self._read, args=(level,)) for level in ("read_committed", "read_uncommitted")
        ]

    def _write(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)

    def __enter__(self) -> Self:
        for thread in (*self._producers, *self._readers):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stops.set()
        self._drains.set()
        for thread in (*self._producers, *self._readers):
            thread.join(WAIT_S)

    def wait_for_more(self, transactions: int) -> None:
        wanted, deadline = self.ended_count + transactions, time.monotonic() + WAIT_S
        while self.ended_count < wanted:
            assert time.monotonic() < deadline, f"{self.ended_count} of {wanted} transactions in time"
            time.sleep(0.02)

    def finish(self) -> Report:
        """All transactions are ended and all that they have left is read. Gives what the checker says."""
        self._stops.set()
        for thread in self._producers:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        self._drains.set()
        for thread in self._readers:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        self._recorder.process("readers").drained()
        return verify(self._lines)

    # ---- producers

    def _produce(self, number: int) -> None:
        life = 0
        while not self._stops.is_set() or life == 0:
            life += 1
            producer = Producer(
                {"bootstrap.servers": self._bootstrap, "transactional.id": f"history-{number}", "linger.ms": 0} | _QUICK
            )
            process = self._recorder.process(f"producer {number} life {life}")
            try:
                producer.init_transactions(_CALL_S)
                self._run_transactions(producer, process, f"{number}.{life}")
            except KafkaException:
                continue  # The outcome is unknown. The next instance ends what this one has left open.
        # Nothing of the last instance may be left open when the readers drain.
        Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": f"history-{number}"} | _QUICK
        ).init_transactions(WAIT_S)

    def _run_transactions(self, producer: Producer, process: Process, name: str) -> None:
        count = 0
        while not self._stops.is_set():
            count += 1
            producer.begin_transaction()
            process.begin()
            for index in range(RECORDS):
                partition, value = index % PARTITIONS, f"{name}.{count}.{index}"
                send = process.send(f"{self._topic}-{partition}", value)
                producer.produce(self._topic, value.encode(), partition=partition, on_delivery=_told(send))
            producer.flush(_CALL_S)  # What was not sent yet would not be aborted, but dropped by the client.
            if count % 4 == 3:
                ending = process.abort()
                producer.abort_transaction(_CALL_S)
            else:
                ending = process.commit()
                producer.commit_transaction(_CALL_S)
            ending.ok()
            self.ended_count += 1

    # ---- readers

    def _read(self, level: str) -> None:
        process = self._recorder.process(level, isolation=level)
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": level,
                "isolation.level": level,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
            | _QUICK
        )
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
        at_end: set[int] = set()
        is_draining = False
        while len(at_end) < PARTITIONS:
            if self._drains.is_set() and not is_draining:
                is_draining = True
                # The end of a partition is told once. Who begins anew where it is, is told again.
                places = consumer.position(consumer.assignment())
                consumer.assign([TopicPartition(each.topic, each.partition, max(0, each.offset)) for each in places])
            records = []
            for message in consumer.consume(200, 0.1):
                error = message.error()
                if error is None:
                    records.append(self._record(message))
                elif error.name() == "_PARTITION_EOF" and is_draining:
                    at_end.add(message.partition() or 0)
            if records:
                process.polled(records)
        consumer.close()

    def _record(self, message: Message) -> tuple[str, int, str]:
        value = message.value()
        return f"{self._topic}-{message.partition()}", message.offset() or 0, (value or b"").decode()


def _told(send: Send):
    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            send.ok(message.offset())
        else:
            send.info()

    return on_delivery
