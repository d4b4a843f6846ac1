"""`make demo`: a broker, a client that others wrote, our own commands, a queue with dead letters (demo_queue.py),
schemas that evolve (demo_schemas.py), a handler that fails and its dead letter (demo_handlers.py), a cluster that lets
in only who may come (demo_secure.py), one that is lost but for its bucket (demo_tier.py), a datacenter that dies
(demo_mirror.py), a cluster whose leader is killed at work, transactions whose producer is, what tells of a dead broker
(demo_watch.py), and a data pipeline on Spark that survives all that (demo_pipeline.py).

Everything shown happens; a step that goes wrong ends the demo with a message and exit code 1.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from demo_handlers import bury_and_replay
from demo_mirror import lose_a_datacenter
from demo_pipeline import ORDERS, REVENUE, finish_and_audit, pipelines_under_fire
from demo_queue import give_up_and_send_back
from demo_schemas import evolve_schemas
from demo_secure import LEDGER, SETTINGS, refuse, renew, throttle
from demo_tier import lose_everything
from demo_watch import kill_and_be_told
from exactly_once import PAYMENTS, RECEIPTS

from tailrace.spark.session import JavaNotFoundError, find_java_home
from tailrace.testing import Broker, Cluster

WAIT_S = 30.0
RECORDS = 200_000
PAYMENT_COUNT = 5000
VALUE = b"x" * 100
IS_TERMINAL = sys.stdout.isatty()
# What librdkafka would say about lost connections is the point of the demo, and not worth a line each.
CLIENT: dict[str, str | int | bool] = {"log_level": 2}


def main() -> None:
    started = time.monotonic()
    broker = Broker(log_level="warning", registry=True)
    with step("A broker starts"):
        begun = time.monotonic()
        broker.start()
        show(f"$ tailrace up --port {broker.port}")
        show(f"ready: {broker.bootstrap}   ({milliseconds(begun)} ms after the command, no JVM)")
    try:
        with step("A Kafka client that knows nothing of us writes and reads (confluent-kafka, librdkafka)"):
            write_and_read(broker)
        with step("The same broker by our own commands"):
            use_commands(broker)
        with step("A queue with a job that nobody can do: dead letters, and back (ShareConsumer of confluent-kafka)"):
            give_up_and_send_back(broker, command, show, expect)
        with step("Schemas by a registry beside it: one that evolves, and one that is refused"):
            evolve_schemas(broker, show)
        with step("A handler fails: retries, a dead letter, and its replay"):
            bury_and_replay(broker, command, show, expect)
        with step("A clean stop"):
            broker.stop()
            show("SIGTERM: answers sent, logs closed, exit code 0")
    finally:
        broker.close()
    secure_cluster()
    with step("A topic in a bucket: every broker and disk is deleted, and it comes back"):
        lose_everything(show, expect)
    with step("A datacenter dies: its mirror takes over, at the same offsets"):
        lose_a_datacenter(command, show, expect)
    # A group whose only member is known in advance need not wait for others.
    cluster = Cluster({"group.initial.rebalance.delay.ms": 0}, brokers=3, log_level="warning")
    with step("Three brokers and three controllers, every record on three disks"):
        begun = time.monotonic()
        cluster.start()
        show("$ tailrace up --brokers 3")
        show(f"ready: {cluster.bootstrap}   ({milliseconds(begun)} ms after the command)")
    try:
        command(cluster, "topic", "create", "ledger", "--partitions", "1")
        with step("kill -9 of the leader while an idempotent producer writes"):
            kill_leaders(cluster)
        with step("kill -9 of a loop that reads, transforms and writes in transactions (examples/exactly_once.py)"):
            kill_transactions(cluster)
        with step("The cluster as its operator sees it"):
            command(cluster, "cluster", "describe")
        with step("And in a browser"):
            look_at_console(cluster)
        with step("A broker dies: `tailrace top`, /metrics, an alert, and the runbook that it links to"):
            kill_and_be_told(cluster, show, expect)
            wait_in_sync(cluster)
        data_pipeline(cluster)
        cluster.stop()
    finally:
        cluster.close()
    print(f"\n{bold('All of it worked')}, in {time.monotonic() - started:.1f} s. Next: `tailrace up`, or README.md.")


def look_at_console(cluster: Cluster) -> None:
    """Until the step ends; `tailrace up --console-port 9080` keeps one."""
    words = [sys.executable, "-m", "tailrace", "console", "--port", "0", "--bootstrap", cluster.bootstrap]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = wait_line(process).removeprefix("console: ").strip()
            with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                page = answer.read().decode()
            expect("All well" in page, "the console does not find the cluster well")
            show("$ tailrace up --brokers 3 --console-port 9080")
            show(f"console: {address}   (its first page says: all well. docs/console.md has pictures)")
        finally:
            process.terminate()


def secure_cluster() -> None:
    cluster = Cluster(SETTINGS, brokers=3, secure=True, log_level="warning")
    with step("A secure cluster: TLS between all, an admin with a password, and ACLs"):
        begun = time.monotonic()
        cluster.start()
        show("$ tailrace up --secure --brokers 3 --data ./data")
        show(f"ready: {cluster.bootstrap}   ({milliseconds(begun)} ms after the command)")
    try:
        admin = ("--command-config", f"{cluster.data}/client.properties")
        command(cluster, "topic", "create", LEDGER, "--partitions", "1", hidden=admin)
        with step("Who has no password is refused, and who has no rights"):
            refuse(cluster, show, expect)
        with step("Who floods is held to a quota"):
            throttle(cluster, lambda *words: command(cluster, *words, hidden=admin), show, expect)
        with step("The certificate is renewed while clients write"):
            renew(cluster, lambda *words: command(None, *words), show, expect)
        cluster.stop()
    finally:
        cluster.close()


def data_pipeline(cluster: Cluster) -> None:
    try:
        find_java_home()
    except JavaNotFoundError as error:
        print(f"\nThe data pipeline is left out. {error}")
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as name:
        folder = Path(name)
        for topic in (ORDERS, REVENUE):
            command(cluster, "topic", "create", topic, "--partitions", "3")
        with step("Orders flow through Spark into a table, while the pipeline and a broker are killed"):
            acked = pipelines_under_fire(cluster, folder, show, expect)
        with step("The pipelines go on from their checkpoints, and an audit compares topic and table"):
            finish_and_audit(cluster, folder, acked, show, expect)


def write_and_read(broker: Broker) -> None:
    producer = Producer(
        {
            **CLIENT,
            "bootstrap.servers": broker.bootstrap,
            "batch.size": 1 << 18,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    begun = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("greetings", VALUE, partition=0)
    expect(producer.flush(WAIT_S) == 0, "not every record was acknowledged")
    show(f"wrote {RECORDS:,} records of {len(VALUE)} bytes, all acknowledged: {rate(RECORDS, begun)}")
    begun = time.monotonic()
    values = [value for _, value in read_all(broker, "greetings")]
    expect(values == [VALUE] * RECORDS, "what was read is not what was written")
    show(f"read them all back, in order: {rate(RECORDS, begun)}")


def use_commands(broker: Broker) -> None:
    command(broker, "topic", "create", "orders", "--partitions", "3", "--set", "retention.ms=86400000")
    command(
        broker,
        "produce",
        "orders",
        "--key-separator",
        ":",
        text="ann:1 mill wheel\nbob:2 sluice gates\nann:3 paddles\n",
    )
    command(broker, "consume", "orders", "--until-end", "--json")
    command(broker, "topic", "describe", "orders")


def kill_leaders(cluster: Cluster) -> None:
    ledger = Ledger(cluster.bootstrap)
    for _ in range(2):
        ledger.wait_acked(10_000)
        leader = leader_of(cluster)
        ledger.longest_pause_s = 0.0
        cluster.kill(leader)
        killed_after = len(ledger.acked)
        ledger.wait_acked(5_000)
        successor = leader_of(cluster)
        expect(successor != leader, f"broker {leader} leads, and is dead")
        show(f"broker {leader} led and was killed after {killed_after:,} acknowledged records;")
        show(f"  broker {successor} leads now; the producer waited {ledger.longest_pause_s:.1f} s for it")
        cluster.start(leader)
        wait_in_sync(cluster)
        show(f"  broker {leader} was started again and has caught up")
    ledger.wait_acked(5_000)
    acked = ledger.finish()
    stored = {int(value): offset for offset, value in read_all(cluster, "ledger")}
    expect(stored == acked, "an acknowledged record is lost, moved or doubled")
    expect(sorted(acked, key=acked.__getitem__) == list(range(len(acked))), "records are out of order")
    show(f"{len(acked):,} records acknowledged, {len(stored):,} stored: none lost, none doubled, all in order")


def kill_transactions(cluster: Cluster) -> None:
    for topic in (PAYMENTS, RECEIPTS):
        command(cluster, "topic", "create", topic, "--partitions", "3")
    payments = [str(number).encode() for number in range(PAYMENT_COUNT)]
    producer = Producer({**CLIENT, "bootstrap.servers": cluster.bootstrap})
    for payment in payments:
        producer.produce(PAYMENTS, payment)
    expect(producer.flush(WAIT_S) == 0, "not every payment was acknowledged")
    first = start_loop(cluster, PAYMENT_COUNT // 2)
    written, is_open = map(int, wait_line(first).split())
    first.kill()
    first.wait()
    show(f"killed after {written:,} receipts of {len(payments):,}, {is_open} of them in a transaction that is open:")
    command(cluster, "transaction", "list")
    stored, visible = (read_values(cluster, isolation) for isolation in ("read_uncommitted", "read_committed"))
    expect(len(stored) == written, f"{len(stored)} receipts are stored, {written} were written")
    expect(
        len(visible) == written - is_open, f"{len(visible)} receipts are visible, {written - is_open} were committed"
    )
    show(f"  {len(stored):,} are stored, {len(visible):,} are there for who reads committed records")
    second = start_loop(cluster)
    show(f"started again: it takes over, and writes the other {int(wait_line(second)):,}")
    expect(second.wait(WAIT_S) == 0, "the loop has failed")
    command(cluster, "transaction", "list")
    receipts = sorted(read_values(cluster, "read_committed"))
    expect(receipts == sorted(b"receipt of payment " + payment for payment in payments), "a receipt is lost or doubled")
    show(f"{len(payments):,} payments, {len(receipts):,} receipts: none lost, none doubled")


def start_loop(cluster: Cluster, *words: int) -> subprocess.Popen[str]:
    loop = os.path.join(os.path.dirname(__file__), "exactly_once.py")
    arguments = [sys.executable, loop, cluster.bootstrap, str(PAYMENT_COUNT), *map(str, words)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def wait_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    watchdog = threading.Timer(WAIT_S, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    expect(bool(line), "the program has failed, or hangs")
    return line


def read_values(cluster: Cluster, isolation: str) -> list[bytes]:
    """The receipts, up to where every partition says that there are no more."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "demo",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(RECEIPTS, partition, 0) for partition in range(3)])
        values: list[bytes] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + WAIT_S
        while len(ended) < 3:
            expect(time.monotonic() < deadline, f"read {len(values)} receipts, then nothing")
            for message in consumer.consume(10_000, timeout=0.1):
                if message.error():
                    ended.add(message.partition())
                else:
                    values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


def leader_of(cluster: Cluster) -> int:
    return metadata_of(cluster)[0]


def wait_in_sync(cluster: Cluster) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(metadata_of(cluster)[1]) < 3:
        expect(time.monotonic() < deadline, "a broker that came back does not catch up")
        time.sleep(0.1)


def metadata_of(cluster: Cluster) -> tuple[int, list[int]]:
    """Leader and in-sync replicas of the one partition, from a client that has not asked before."""
    client = Producer({**CLIENT, "bootstrap.servers": cluster.bootstrap})
    partition = client.list_topics("ledger", timeout=WAIT_S).topics["ledger"].partitions[0]
    return partition.leader, partition.isrs


class Ledger:
    """An idempotent producer in a thread, and the offset at which each of its records was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: dict[int, int] = {}
        self.longest_pause_s = 0.0
        self._last_ack = time.monotonic()
        self._failed: list[object] = []
        self._is_enough = threading.Event()
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def wait_acked(self, more: int) -> None:
        wanted, deadline = len(self.acked) + more, time.monotonic() + WAIT_S
        while len(self.acked) < wanted:
            expect(time.monotonic() < deadline, f"the producer hangs after {len(self.acked)} records")
            time.sleep(0.01)

    def finish(self) -> dict[int, int]:
        self._is_enough.set()
        self._thread.join()
        expect(self._producer.flush(WAIT_S) == 0, "the producer hangs")
        expect(not self._failed, f"records were not delivered: {self._failed[:3]}")
        return self.acked

    def _write(self) -> None:
        number = 0
        while not self._is_enough.is_set():
            for _ in range(50):
                self._producer.produce("ledger", str(number).encode(), partition=0, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)
            time.sleep(0.002)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self.acked[int(message.value() or b"")] = message.offset() or 0
            now = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now - self._last_ack)
            self._last_ack = now


def read_all(broker: Broker | Cluster, topic: str) -> list[tuple[int, bytes]]:
    """(offset, value) of partition 0, from its first record to its last."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": broker.bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            # Else librdkafka pauses for a whole second whenever its queue is full.
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < end:
            expect(time.monotonic() < deadline, f"read {len(found)} of {end} records, then nothing")
            found += [
                (message.offset() or 0, message.value() or b"") for message in consumer.consume(10_000, timeout=0.2)
            ]
        return found
    finally:
        consumer.close()


def command(
    broker: Broker | Cluster | None, *words: str, hidden: tuple[str, ...] = (), text: str | None = None
) -> None:
    """`hidden` says who asks."""
    shown = " ".join(words)
    place = () if broker is None else ("--bootstrap", broker.bootstrap)
    show(f"$ tailrace {shown}" if text is None else f"$ tailrace {shown} <<END\n{text}END")
    # A terminal of its own, so that it prints for people and not for a pipe.
    screen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", *words, *hidden, *place],
        stdin=subprocess.PIPE,
        stdout=terminal,
        stderr=subprocess.DEVNULL if text else terminal,
        env={**os.environ, "COLUMNS": "100", **({} if IS_TERMINAL else {"NO_COLOR": "1", "TERM": "dumb"})},
    )
    os.close(terminal)
    process.communicate((text or "").encode(), timeout=WAIT_S)
    show(read_screen(screen))
    expect(process.returncode == 0, f"`tailrace {shown}` ended with exit code {process.returncode}")


def read_screen(screen: int) -> str:
    """All that was printed; a terminal whose other side is gone says so by an error."""
    printed = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(screen, 65536):
            printed += chunk
    os.close(screen)
    return printed.decode().replace("\r\n", "\n").strip("\n")


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    print(f"\n{bold(title)}", flush=True)
    yield


def show(text: str) -> None:
    for line in text.splitlines():
        print(f"  {line}", flush=True)


def milliseconds(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)


def rate(count: int, begun: float) -> str:
    return f"{count / (time.monotonic() - begun):,.0f} a second"


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if IS_TERMINAL else text


def expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        sys.exit(f"demo failed: {otherwise}")


if __name__ == "__main__":
    main()
