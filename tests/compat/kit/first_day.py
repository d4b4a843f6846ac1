"""What somebody writes on the first day with the kit. Nobody runs it: it is read by mypy --strict (test_kit_page)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.kit import (
    BEGINNING,
    Admin,
    Consumer,
    Delivered,
    Json,
    Message,
    Outgoing,
    Producer,
    TopicPartition,
    sync,
)
from tailrace.kit.app import App, Deduplicate, Reject, Retries


@dataclass
class Order:
    id: int


async def first() -> None:
    async with Admin(bootstrap_servers="x:1") as admin:
        parts = await admin.partitions_of("orders")
        ends = await admin.end_offsets(parts)
        await admin.alter_group_offsets("g", ends)
        lag: dict[TopicPartition, int] = await admin.group_lag("g")
        print(lag)
    async with Consumer(
        {"bootstrap.servers": "x:1", "group.id": "g"}, topics=["orders"], values=Json(Order)
    ) as consumer:
        await consumer.assign(await consumer.beginning_offsets(parts))
        await consumer.assign(dict.fromkeys(parts, BEGINNING))
        await consumer.assign(parts)
        done: dict[TopicPartition, int] = {}
        async for message in consumer:
            done[message.topic_partition] = message.offset + 1
            await consumer.commit(done)
            break
        await consumer.commit(await consumer.committed_with_metadata())
        consumer.pause(parts)
        async with Producer(bootstrap_servers="x:1", transactional_id="t") as producer:
            async with producer.transaction():
                await producer.send_offsets_to_transaction(done, consumer.group_metadata())
            where: Delivered = await producer.produce("orders", Order(1), key="ann", headers={"a": "b"})
            print(where.offset)
            n: int = await producer.produce_many("orders", [Outgoing(Order(1), key=b"k")])
            print(n)


app = App("billing", bootstrap_servers="x:1")


@app.consume("orders", values=Json(Order), retries=Retries(steps=("5s",)), window_records=10)
async def bill(message: Message) -> None:
    order: Order = message.value
    raise Reject(str(order))


@app.consume("orders", group="b", share=True)
def bill2(message: Message) -> None:
    print(message.key)


@app.process("orders", "out", deduplicate=Deduplicate(by=lambda message: message.header("id")))
async def proc(message: Message) -> list[Outgoing]:
    return [Outgoing(1)]


def blocking() -> None:
    with sync.Producer(bootstrap_servers="x:1") as producer:
        producer.produce("orders", 1)
    with sync.Consumer({"bootstrap.servers": "x"}, topics=["a"]) as consumer:
        consumer.commit({TopicPartition("a", 0): 1})
        for message in consumer:
            print(message.value)
        consumer.assign(consumer.beginning_offsets([TopicPartition("a", 0)]))
    with sync.Admin(bootstrap_servers="x") as admin:
        print(admin.topics())
