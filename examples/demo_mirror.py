"""What `make demo` shows of mirrors: a datacenter that dies, and a consumer group that goes on in the other one."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.testing import Broker

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]

WAIT_S = 20.0
TOPIC, GROUP = "trades", "settlement"
RECORDS, READ = 5000, 2000


def lose_a_datacenter(command: Callable[..., None], show: Show, expect: Expect) -> None:
    """`command` runs one of ours, and shows it."""
    with Broker(log_level="error") as here, Broker(log_level="error") as there:
        write(there.bootstrap, RECORDS, expect)
        command(here, "mirror", "create", "dc1", "--source", there.bootstrap, "--set", "sync.interval.ms=100")
        last = read(there.bootstrap, READ, expect)
        show(f"a group has read {READ:,} of {RECORDS:,} records there, up to offset {last}")
        wait_committed(here.bootstrap, last + 1, expect)
        there.kill()
        show("kill -9: the datacenter is gone")
        begun = time.monotonic()
        command(here, "mirror", "failover", "dc1")
        write(here.bootstrap, 1, expect)
        show(f"the first record is written here, {1000 * (time.monotonic() - begun):.0f} ms after the command")
        first = read(here.bootstrap, 1, expect)
        expect(first == last + 1, f"the group goes on at offset {first}, not {last + 1}")
        show(f"the group goes on at offset {first}, by its committed offset")


def write(bootstrap: str, count: int, expect: Expect) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(count):
        producer.produce(TOPIC, f"trade {number}", partition=0)
    expect(producer.flush(WAIT_S) == 0, "not every record was acknowledged")


def read(bootstrap: str, count: int, expect: Expect) -> int:
    """The offset of the last of them, which is committed."""
    consumer = Consumer({**_reader(bootstrap), "auto.offset.reset": "earliest"})
    committed = consumer.committed([TopicPartition(TOPIC, 0)], WAIT_S)[0].offset
    consumer.assign([TopicPartition(TOPIC, 0, max(0, committed))])
    messages = consumer.consume(count, WAIT_S)
    expect(len(messages) == count, f"{len(messages)} of {count} records were read")
    last = messages[-1].offset()
    assert last is not None
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, last + 1)], asynchronous=False)
    consumer.close()
    return last


def wait_committed(bootstrap: str, offset: int, expect: Expect) -> None:
    """Until the group's offset has come here, and with it all records before it."""
    consumer = Consumer(_reader(bootstrap))
    deadline = time.monotonic() + WAIT_S
    while consumer.committed([TopicPartition(TOPIC, 0)], WAIT_S)[0].offset != offset:
        expect(time.monotonic() < deadline, "the offset of the group was not mirrored")
        time.sleep(0.05)
    consumer.close()


def _reader(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 2}
