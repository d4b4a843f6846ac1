"""A relay of an outbox is killed around its commits: each row becomes one record."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import MetaData, create_engine, select

from tailrace.kit.outbox import enqueue, outbox_table
from tailrace.testing import Broker

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0
ROWS = 100


@pytest.mark.long
def test_deaths_around_a_commit(tmp_path: Path):
    database = f"sqlite:///{tmp_path}/shop.db"
    engine, metadata = create_engine(database), MetaData()
    table = outbox_table(metadata)
    metadata.create_all(engine)
    with engine.begin() as connection:
        for number in range(ROWS):
            enqueue(connection, table, "orders", str(number).encode())
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("orders", 1, 1)]).values():
            created.result(WAIT_S)
        for point in ("complete", "committed", "complete", "committed"):
            relay = _start(database, broker.bootstrap, point, "2")
            assert relay.wait(WAIT_S) == -signal.SIGKILL
        relay = _start(database, broker.bootstrap)
        try:
            deadline = time.monotonic() + WAIT_S
            while True:
                with engine.connect() as connection:
                    left = len(connection.execute(select(table.c.id).where(table.c.sent_at.is_(None))).all())
                if not left:
                    break
                assert time.monotonic() < deadline, f"{left} rows are not sent"
                time.sleep(0.1)
        finally:
            relay.kill()
            relay.wait()
        assert _read(broker.bootstrap) == {str(number): 1 for number in range(ROWS)}
    engine.dispose()


def _start(database: str, bootstrap: str, *death: str) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "tests.real.kit.relaying", database, bootstrap, *death]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    return subprocess.Popen(words, cwd=ROOT, env=environment)


def _read(bootstrap: str) -> Counter[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: Counter[str] = Counter()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                consumer.close()
                return found
            found[message.value().decode()] += 1
    raise AssertionError(f"no end of the topic: {found.total()} records")
