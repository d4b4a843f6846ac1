"""The transport for kombu: kombu's own classes over topics, in one process and in several; Celery in long tests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest

import tailrace.kit.kombu  # noqa: F401 - makes the scheme known
from tailrace.model.errors import KafkaError
from tailrace.testing import Broker

WAIT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@contextmanager
def connected(broker: Broker, **options: Any) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"tailrace://{broker.bootstrap}", transport_options=options) as connection:
        yield connection


def test_what_is_acknowledged_is_gone_and_what_is_not_comes_again(broker: Broker):
    with connected(broker) as connection, closing(connection.SimpleQueue("jobs")) as queue:
        for number in range(4):
            queue.put({"number": number}, headers={"from": "test"})
        first, second, third, _ = [queue.get(timeout=WAIT_S) for _ in range(4)]
        assert (first.payload, first.headers) == ({"number": 0}, {"from": "test"})
        first.ack()
        second.reject(requeue=False)
        third.requeue()
        again = queue.get(timeout=WAIT_S)
        assert again.payload == {"number": 2}
        assert again.delivery_info["redelivered"]
        again.ack()
    with connected(broker) as other, closing(other.SimpleQueue("jobs")) as queue:
        left = queue.get(timeout=WAIT_S)
        assert left.payload == {"number": 3}
        left.ack()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.5)
        assert queue.qsize() == 0


@pytest.mark.long
def test_a_channel_takes_no_more_than_its_prefetch_count(broker: Broker):
    with connected(broker) as one, connected(broker) as other:
        seen: list[tuple[str, Any]] = []
        consumers = []
        for name, connection in (("one", one), ("other", other)):
            channel = connection.channel()
            channel.basic_qos(0, 2, False)
            consumer = kombu.Consumer(channel, [kombu.Queue("shared")], prefetch_count=2)
            consumer.register_callback(lambda body, message, name=name: seen.append((name, message)))
            consumer.consume()
            consumers.append(consumer)
        producer = one.Producer()
        for number in range(4):
            producer.publish(number, routing_key="shared", declare=[kombu.Queue("shared")])
        _drain_until(lambda: len(seen) == 4, one, other)
        assert sorted(name for name, _ in seen) == ["one", "one", "other", "other"]
        for _, message in seen:
            message.ack()
        for consumer in consumers:
            consumer.cancel()


@pytest.mark.long
def test_a_broadcast_and_a_reply_reach_queues_of_other_processes(broker: Broker):
    """Each connection stands for a process: they share nothing but the cluster."""
    fanout, direct = kombu.Exchange("news", type="fanout"), kombu.Exchange("replies", type="direct")
    heard: list[tuple[str, Any]] = []
    with connected(broker) as one, connected(broker) as two, connected(broker) as asking:
        for name, connection in (("one", one), ("two", two)):
            consumer = connection.Consumer([kombu.Queue(f"news-{name}", exchange=fanout)])
            consumer.register_callback(lambda body, message, name=name: (heard.append((name, body)), message.ack()))
            consumer.consume()
        replies = asking.Consumer([kombu.Queue("for-asking", exchange=direct, routing_key="asking")])
        replies.register_callback(lambda body, message: (heard.append(("asking", body)), message.ack()))
        replies.consume()
        asking.Producer(exchange=fanout).publish("ping")
        _drain_until(lambda: len(heard) == 2, one, two)
        one.Producer(exchange=direct).publish("pong", routing_key="asking")
        _drain_until(lambda: len(heard) == 3, asking)
    assert sorted(heard) == [("asking", "pong"), ("one", "ping"), ("two", "ping")]


def test_what_has_expired_is_passed_over(broker: Broker):
    with connected(broker) as connection, closing(connection.SimpleQueue("brief")) as queue:
        queue.put("late", expiration=0.01)
        time.sleep(0.1)
        queue.put("fresh", expiration=60)
        message = queue.get(timeout=WAIT_S)
        assert message.payload == "fresh"
        message.ack()


def test_a_queue_is_counted_emptied_and_deleted(broker: Broker):
    with connected(broker, prefix="shop.") as connection, closing(connection.SimpleQueue("tasks/of day")) as queue:
        for number in range(5):
            queue.put(number)
        assert queue.qsize() == 5
        assert queue.clear() == 5
        assert queue.qsize() == 0
        channel = connection.default_channel
        channel.queue_delete("tasks/of day")
        with pytest.raises(Exception, match="no queue"):
            channel.queue_declare("tasks/of day", passive=True)


@pytest.mark.long
def test_a_message_with_an_eta_waits_in_the_cluster(broker: Broker):
    mover = subprocess.Popen([sys.executable, "-m", "tailrace", "delays", "--bootstrap", broker.bootstrap])
    try:
        with connected(broker, delays="delays") as connection, closing(connection.SimpleQueue("later")) as queue:
            due = datetime.now(UTC) + timedelta(seconds=3)
            queue.put("at three", headers={"eta": due.isoformat()})
            queue.put("now")
            assert queue.get(timeout=WAIT_S).payload == "now"
            assert queue.get(timeout=WAIT_S).payload == "at three"
            assert datetime.now(UTC) >= due
    finally:
        mover.terminate()
        mover.wait(WAIT_S)


def test_nobody_answers():
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:12"):
        kombu.Connection("tailrace://127.0.0.1:12").connect()


def _drain_until(holds: Any, *connections: kombu.Connection) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        for connection in connections:
            try:
                connection.drain_events(timeout=0.1)
            except TimeoutError:
                pass


# --- Celery

TASKS = """
import os, time
import tailrace.kit.kombu
from celery import Celery

app = Celery("shop", broker="tailrace://" + os.environ["BROKER"])
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True

def note(text):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(text + "\\n")

@app.task
def count(number):
    time.sleep(0.02)
    note(f"count {number}")

@app.task(bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    note(f"flaky {self.request.retries}")
"""


@pytest.mark.long
def test_celery_workers_are_killed_and_no_task_is_lost(broker: Broker, tmp_path: Path):
    notes = tmp_path / "notes"
    notes.touch()
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    environment = {**os.environ, "BROKER": broker.bootstrap, "NOTES": str(notes), "PYTHONPATH": str(tmp_path)}

    def worker(number: int) -> subprocess.Popen[bytes]:
        words = ["-m", "celery", "-A", "shop_tasks", "worker", "-c", "2", "-n", f"w{number}@here", "-l", "WARNING"]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words],
                env=environment,
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    send = "import shop_tasks as s; [s.count.delay(n) for n in range(400)]; s.flaky.delay()"
    workers = [worker(0), worker(1)]
    try:
        subprocess.run([sys.executable, "-c", send], env=environment, cwd=tmp_path, check=True, timeout=90)
        wanted = {*(f"count {number}" for number in range(400)), "flaky 2"}
        deadline = time.monotonic() + 180
        while not wanted <= set(notes.read_text().splitlines()):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-3000:]
            done = len(set(notes.read_text().splitlines()))
            if done > 50 * len(workers) and len(workers) < 6:
                os.killpg(workers[-2].pid, signal.SIGKILL)
                workers[-2].wait()
                workers.append(worker(len(workers)))
            time.sleep(0.2)
        assert len(workers) > 3
        ask = "import shop_tasks as s; print(len(s.app.control.inspect(timeout=10).ping() or ()))"
        told = subprocess.run(
            [sys.executable, "-c", ask], env=environment, cwd=tmp_path, capture_output=True, timeout=90, check=False
        )
        assert told.stdout.strip() in (b"1", b"2"), told.stderr
        workers[-1].terminate()
        assert workers[-1].wait(60) == 0
    finally:
        for each in workers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
