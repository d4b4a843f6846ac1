"""What `make demo` shows of queues: a share group with a job that nobody can do. It is tried three times, ends in the
dead letters, and is sent back once there is somebody who can (confluent-kafka's ShareConsumer)."""

import time
from collections.abc import Callable

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from tailrace.testing import Broker

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]
Command = Callable[..., None]

WAIT_S = 30.0
JOBS = [b"resize cat.png", b"resize \xff", b"resize dog.png", b"resize owl.png"]
POISON = JOBS[1]
SETTINGS = (
    "share.auto.offset.reset=earliest",
    "share.delivery.count.limit=3",
    "share.retry.backoff.ms=100",
    "errors.deadletterqueue.topic.name=dlq.jobs",
)


def give_up_and_send_back(broker: Broker, command: Command, show: Show, expect: Expect) -> None:
    command(broker, "topic", "create", "jobs", "--partitions", "1")
    command(broker, "topic", "create", "dlq.jobs", "--set", "errors.deadletterqueue.group.enable=true")
    command(broker, "queue", "set", "workers", *SETTINGS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for job in JOBS:
        producer.produce("jobs", job)
    expect(producer.flush(WAIT_S) == 0, "not every job was acknowledged")
    worker = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
            "log_level": 2,
        }
    )
    worker.subscribe(["jobs"])
    try:
        tries = work(worker, {POISON}, lambda tries: len(tries) == len(JOBS) and tries[POISON] == 3)
        expect(tries == {job: 3 if job == POISON else 1 for job in JOBS}, f"jobs were tried so often: {tries}")
        show(
            f"{len(JOBS) - 1} jobs are done; one fails, comes back later each time, and is given up after 3 deliveries"
        )
        command(broker, "queue", "list")
        command(broker, "queue", "peek", "workers", "--dead-letters")
        show("the worker is mended")
        command(broker, "queue", "redrive", "workers")
        tries = work(worker, set(), lambda tries: POISON in tries)
        expect(tries == {POISON: 1}, f"after the redrive jobs were tried so often: {tries}")
        show("and does the job: accepted at its first delivery")
    finally:
        worker.close()


def work(worker: ShareConsumer, fails: set[bytes], is_over: Callable[[dict[bytes, int]], bool]) -> dict[bytes, int]:
    """Which jobs were tried, and how often each was delivered by then."""
    tries: dict[bytes, int] = {}
    ends = time.monotonic() + WAIT_S
    while not is_over(tries) and time.monotonic() < ends:
        for job in worker.poll(0.1):
            name = job.value() or b""
            tries[name] = job.delivery_count() or 0
            worker.acknowledge(job, AcknowledgeType.RELEASE if name in fails else AcknowledgeType.ACCEPT)
        worker.commit_sync()
    return tries
