"""The console's pages of queues: depth, dead letters, and how they are sent back."""

from __future__ import annotations

import subprocess
import sys
import time

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from tailrace.testing import Broker

from .conftest import console
from .test_doors import FORM, ask, form
from .test_tier import cells

DEADLINE_S = 60.0


def command(broker: Broker, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "tailrace", *words, "--bootstrap", broker.bootstrap], check=True, timeout=60)


def reject_one(broker: Broker) -> None:
    client = {"bootstrap.servers": broker.bootstrap, "log_level": 2}
    worker = ShareConsumer(client | {"group.id": "workers", "share.acknowledgement.mode": "explicit"})
    worker.subscribe(["jobs"])
    deadline = time.monotonic() + DEADLINE_S
    count = 0
    while count < 3:
        assert time.monotonic() < deadline, "the jobs were not delivered"
        for job in worker.poll(0.2):
            is_bad = job.value() == b"poison"
            worker.acknowledge(job, AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT)
            count += 1
        worker.commit_sync()
    worker.close()


def test_a_dead_letter_is_seen_and_sent_back():
    with Broker() as broker:
        command(broker, "topic", "create", "jobs", "--partitions", "1")
        command(broker, "topic", "create", "dlq.jobs", "--set", "errors.deadletterqueue.group.enable=true")
        settings = ("share.auto.offset.reset=earliest", "errors.deadletterqueue.topic.name=dlq.jobs")
        command(broker, "queue", "set", "workers", *settings)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in (b"a", b"poison", b"b"):
            producer.produce("jobs", value)
        assert producer.flush(DEADLINE_S) == 0
        reject_one(broker)
        with console("--bootstrap", broker.bootstrap) as address:
            told = cells(ask(address, "/queues")[1], "workers")[2:]
            assert told == ["0", "0", "jobs", "dlq.jobs", "1"]
            assert 'href="/queues/workers"' in ask(address, "/groups")[1]
            answer, page = ask(address, "/queues/workers")
            assert "Offset rejected by client." in page
            assert "jobs-0 1</a>" in page
            session = {"Cookie": answer.getheader("Set-Cookie").split(";")[0], "Content_Type": FORM}
            post = {"method": "POST", **session}
            assert "All 1 dead letters" in ask(address, "/queues/workers/redrive", body=form(page), **post)[1]
            answer, _ = ask(address, "/queues/workers/redrive", body=form(page, confirm="yes"), **post)
            assert (answer.status, "1%20records%20were%20sent%20back" in answer.getheader("Location")) == (303, True)
            page = ask(address, "/queues/workers")[1]
            assert "There are none in" in page
            assert cells(page, "jobs-0")[1:3] == ["3", "1"]
            assert ask(address, "/queues/no-such-group")[0].status == 404
