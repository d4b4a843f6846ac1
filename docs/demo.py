"""`make demo`: a broker, a client that others wrote, our own commands, and a kill -9 in the middle of it all.

Everything shown happens; a step that goes wrong ends the demo with a message and exit code 1.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tailrace.testing import Broker

WAIT_S = 30.0
RECORDS = 200_000
VALUE = b"x" * 100
IS_TERMINAL = sys.stdout.isatty()


def main() -> None:
    started = time.monotonic()
    broker = Broker(log_level="warning")
    with step("A broker starts"):
        broker.start()
        show(f"$ tailrace up --port {broker.port}")
        show(f"ready: {broker.bootstrap}   ({(time.monotonic() - started) * 1000:.0f} ms from nothing, no JVM)")
    try:
        with step("A Kafka client that knows nothing of us writes and reads (confluent-kafka, librdkafka)"):
            write_and_read(broker)
        with step("The same broker by our own commands"):
            use_commands(broker)
        with step("kill -9 while an idempotent producer writes"):
            kill_under_load(broker)
        with step("A clean stop"):
            broker.stop()
            show("SIGTERM: answers sent, logs closed, exit code 0")
    finally:
        broker.close()
    print(f"\n{bold('All of it worked')}, in {time.monotonic() - started:.1f} s. Next: `tailrace up`, or README.md.")


def write_and_read(broker: Broker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 5,
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


def kill_under_load(broker: Broker) -> None:
    acked: dict[int, int] = {}
    failed: list[object] = []
    is_enough = threading.Event()

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acked[int(message.value() or b"")] = message.offset() or 0

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200}
    )

    def write() -> None:
        number = 0
        while not is_enough.is_set():
            producer.produce("ledger", str(number).encode(), partition=0, on_delivery=delivered)
            number += 1
            producer.poll(0.0005)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(2):
        time.sleep(0.7)
        broker.kill()
        killed_after = len(acked)
        begun = time.monotonic()
        broker.start()
        show(f"killed after {killed_after:,} acknowledged records, back in {(time.monotonic() - begun) * 1000:.0f} ms")
    time.sleep(0.7)
    is_enough.set()
    writer.join()
    expect(producer.flush(WAIT_S) == 0, "the producer hangs")
    expect(not failed, f"records were not delivered: {failed[:3]}")
    stored = {int(value): offset for offset, value in read_all(broker, "ledger")}
    expect(stored == acked, "an acknowledged record is lost, moved or doubled")
    expect(sorted(acked, key=acked.__getitem__) == list(range(len(acked))), "records are out of order")
    show(f"{len(acked):,} records acknowledged, {len(stored):,} stored: none lost, none doubled, all in order")


def read_all(broker: Broker, topic: str) -> list[tuple[int, bytes]]:
    """(offset, value) of partition 0, from its first record to its last."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "demo", "enable.auto.commit": False})
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


def command(broker: Broker, *words: str, text: str | None = None) -> None:
    shown = " ".join(words)
    if text is not None:
        shown += " <<END\n" + text + "END"
    show(f"$ tailrace {shown}")
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words, "--bootstrap", broker.bootstrap],
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    expect(done.returncode == 0, f"`tailrace {shown}` failed: {done.stderr}")
    show(done.stdout.rstrip())


@contextmanager
def step(title: str) -> Iterator[None]:
    print(f"\n{bold(title)}", flush=True)
    yield


def show(text: str) -> None:
    for line in text.splitlines():
        print(f"  {line}", flush=True)


def rate(count: int, begun: float) -> str:
    return f"{count / (time.monotonic() - begun):,.0f} a second"


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if IS_TERMINAL else text


def expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        sys.exit(f"demo failed: {otherwise}")


if __name__ == "__main__":
    main()
