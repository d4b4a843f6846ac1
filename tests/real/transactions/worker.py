"""Consume, transform, produce: `python -m tests.real.transactions.worker BOOTSTRAP GROUP INPUT OUTPUT ID`.

What it reads it writes to the same partition of the other topic, and commits the offsets in the same transaction. What
went wrong is taken back, and done again from the committed offsets; after a fatal error the process ends, and whoever
watches it starts another one. It ends when its standard input does.
"""

import os
import sys
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

FATAL = 3  # The exit code after an error that only a new instance can heal.
STEP_S = 4.0
TRIES = 2
CLIENT: dict[str, object] = {
    "log_level": 2,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 500,
    # A process that was stopped holds its connections.
    "socket.timeout.ms": 5000,
}


class _FatalError(Exception):
    pass


class Worker:
    def __init__(self, bootstrap: str, group: str, output: str, transactional_id: str) -> None:
        self._output = output
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 2500,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 20,
            }
        )
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 0,
            }
        )

    def run(self, topic: str, closing: threading.Event) -> None:
        self._retry(lambda: self._producer.init_transactions(STEP_S))
        self._consumer.subscribe([topic])
        while not closing.is_set():
            records = [each for each in self._consumer.consume(100, 0.05) if each.error() is None]
            if records:
                self._transform(records)
        self._consumer.close()

    def _transform(self, records: list[Message]) -> None:
        try:
            self._producer.begin_transaction()
            for record in records:
                self._producer.produce(self._output, record.value(), partition=record.partition() or 0)
            positions = self._consumer.position(self._consumer.assignment())
            offsets = [place for place in positions if place.offset >= 0]
            metadata = self._consumer.consumer_group_metadata()
            self._retry(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, STEP_S))
            self._retry(lambda: self._producer.commit_transaction(STEP_S))
        except KafkaException as failure:
            error = failure.args[0]
            print("aborted", error.name(), flush=True)
            if error.fatal() or not error.txn_requires_abort():
                raise _FatalError(str(error)) from failure
            self._retry(lambda: self._producer.abort_transaction(STEP_S))
            self._rewind()
        else:
            print("done", len(records), flush=True)

    def _rewind(self) -> None:
        places = self._consumer.assignment()
        if not places:
            return
        for place in self._consumer.committed(places, STEP_S):
            offset = place.offset if place.offset >= 0 else 0
            self._consumer.seek(TopicPartition(place.topic, place.partition, offset))

    def _retry(self, step: Callable[[], None]) -> None:
        """Not for ever: librdkafka 2.16 keeps the coordinator of a group in mind for five minutes, and waits for its
        broker even after it has struck it off since it was missing in the metadata; at times past its own timeout."""
        for _ in range(TRIES):
            stuck = threading.Timer(2 * STEP_S, os._exit, (FATAL,))
            stuck.start()
            try:
                step()
            except KafkaException as failure:
                if not failure.args[0].retriable() or failure.args[0].txn_requires_abort():
                    raise
            else:
                return
            finally:
                stuck.cancel()
        raise _FatalError("no answer in time")


if __name__ == "__main__":
    over = threading.Event()

    def _watch() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=_watch, daemon=True).start()
    bootstrap, group, source, target, name = sys.argv[1:]
    try:
        Worker(bootstrap, group, target, name).run(source, over)
    except (_FatalError, KafkaException) as failure:
        print("fatal", failure, flush=True)
        os._exit(FATAL)  # The watching thread holds the standard input.
