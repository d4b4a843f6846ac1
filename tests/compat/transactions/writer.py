"""A transactional producer as a process: `python -m tests.compat.transactions.writer LIBRARY BOOTSTRAP TOPIC ID FIRST`.

It writes transaction after transaction, numbered from FIRST on, of RECORDS records each over all partitions, and every
third is aborted. Before and after each step there is a line on its standard output, so that who kills it knows what may
have happened. It ends when its standard input does.
"""

import asyncio
import sys
import threading
from collections.abc import Callable

from confluent_kafka import Producer

RECORDS = 8
PARTITIONS = 2
DEADLINE_S = 30.0


def value_of(transaction: int, index: int) -> bytes:
    return b"%d:%d" % (transaction, index)


def is_aborted(transaction: int) -> bool:
    return transaction % 3 == 2


class Journal:
    """Also knows when it is over."""

    def __init__(self) -> None:
        self.closing = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.buffer.read()
        self.closing.set()

    def write(self, what: str, transaction: int = 0) -> None:
        print(what, transaction, flush=True)


def write_confluent(bootstrap: str, topic: str, transactional_id: str, first: int, journal: Journal) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
    )
    producer.init_transactions(DEADLINE_S)
    transaction = first
    while not journal.closing.is_set():
        producer.begin_transaction()
        journal.write("begun", transaction)
        for index in range(RECORDS):
            producer.produce(topic, value_of(transaction, index), partition=index % PARTITIONS)
        if is_aborted(transaction):
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        journal.write("ended", transaction)
        transaction += 1


def write_kafka_python(bootstrap: str, topic: str, transactional_id: str, first: int, journal: Journal) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=0, reconnect_backoff_ms=20
    )
    producer.init_transactions()
    transaction = first
    while not journal.closing.is_set():
        producer.begin_transaction()
        journal.write("begun", transaction)
        for index in range(RECORDS):
            producer.send(topic, value_of(transaction, index), partition=index % PARTITIONS)
        if is_aborted(transaction):
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        journal.write("ended", transaction)
        transaction += 1
    producer.close(DEADLINE_S)


def write_aiokafka(bootstrap: str, topic: str, transactional_id: str, first: int, journal: Journal) -> None:
    asyncio.run(_write_aiokafka(bootstrap, topic, transactional_id, first, journal))


async def _write_aiokafka(bootstrap: str, topic: str, transactional_id: str, first: int, journal: Journal) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=20)
    await producer.start()
    transaction = first
    while not journal.closing.is_set():
        await producer.begin_transaction()
        journal.write("begun", transaction)
        sent = [
            await producer.send(topic, value_of(transaction, index), partition=index % PARTITIONS)
            for index in range(RECORDS)
        ]
        if is_aborted(transaction):
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
        await asyncio.gather(*sent, return_exceptions=True)
        journal.write("ended", transaction)
        transaction += 1
    await producer.stop()


WRITERS: dict[str, Callable[[str, str, str, int, Journal], None]] = {
    "confluent": write_confluent,
    "aiokafka": write_aiokafka,
    "kafka-python": write_kafka_python,
}


if __name__ == "__main__":
    library, *names, first_transaction = sys.argv[1:]
    bootstrap, topic, transactional_id = names
    WRITERS[library](bootstrap, topic, transactional_id, int(first_transaction), Journal())
