"""Handlers in share groups on a real broker: each record to one of them, retries, dead letters, slow and dying ones."""

import asyncio
from collections import Counter

import pytest

from tailrace.client.shares.consumer import ShareConsumer, ShareOptions
from tailrace.kit import Message, Text
from tailrace.kit.app import App, Reject, Retries
from tailrace.kit.options import ParsedOptions
from tailrace.real.cluster import open_cluster
from tests.unit.kit.app.conftest import DEADLINE_S, World, until

NONE = Retries(on_the_spot=0, steps=())


async def test_each_record_goes_to_one_member_from_the_earliest_on(world: World):
    await world.create()  # One partition, and both members work on it.
    await world.write(*(str(number) for number in range(300)))
    seen: dict[str, Counter[str]] = {"first": Counter(), "second": Counter()}

    def member(name: str) -> App:
        app = world.app()

        @app.consume(world.topic, values=Text(), retries=NONE, share=True, concurrency=2)
        async def handle(message: Message) -> None:
            await asyncio.sleep(0.005)
            seen[name][message.value] += 1

        return app

    first, second = member("first"), member("second")
    async with world.running(first), world.running(second):
        await until(lambda: seen["first"].total() + seen["second"].total() == 300)
        await until(lambda: first.status()[0].counts.committed + second.status()[0].counts.committed == 300)
        await until(lambda: _is_done(first, world))
    assert seen["first"] + seen["second"] == Counter(str(number) for number in range(300))
    assert min(seen["first"].total(), seen["second"].total()) > 20


async def _is_done(app: App, world: World) -> bool:
    return set((await app.lag())[world.group].values()) == {0}


async def test_failures_go_through_retries_to_the_dead_letters(world: World):
    await world.create(partitions=2)
    await world.write("good", "flaky", "rejected", b"\xff", "poison", key="ann")
    app, attempts = world.app(), Counter()

    @app.consume(
        world.topic, values=Text(), retries=Retries(on_the_spot=1, back_off_ms=10, steps=("50ms",)), share=True
    )
    async def handle(message: Message) -> None:
        attempts[message.value] += 1
        assert message.topic == world.topic
        if message.value == "rejected":
            raise Reject("no")
        if message.value == "poison" or (message.value == "flaky" and attempts["flaky"] < 3):
            raise ConnectionError("away")

    async with world.running(app):
        letters = await world.read(f"{world.topic}.dlq", 3)
        await until(lambda: sum(each.counts.committed for each in app.status()) == 7)
    assert attempts == {"good": 1, "flaky": 3, "rejected": 1, "poison": 3}
    assert sorted(letter.raw_value for letter in letters) == [b"poison", b"rejected", b"\xff"]
    assert {letter.raw_key for letter in letters} == {b"ann"}
    (poison,) = [letter for letter in letters if letter.raw_value == b"poison"]
    assert poison.header("tailrace.retry.group") == world.group.encode()
    assert poison.header("tailrace.retry.attempts") == b"3"
    assert len(await world.read(f"{world.topic}.retry.50ms", 2)) == 2


@pytest.mark.long
async def test_a_slow_handler_keeps_its_record(world: World):
    """Four times as long as the group's lock, with another member that would take it."""
    await world.create()
    await world.set_group(**{"share.record.lock.duration.ms": "1000"})
    await world.write("slow")
    begun: list[str] = []
    release = asyncio.Event()

    def member() -> App:
        app = world.app()

        @app.consume(world.topic, values=Text(), retries=NONE, share=True)
        async def handle(message: Message) -> None:
            begun.append(message.value)
            await release.wait()

        return app

    first, second = member(), member()
    async with world.running(first), world.running(second):
        await until(lambda: bool(begun))
        await asyncio.sleep(4)
        assert begun == ["slow"]
        release.set()
        await until(lambda: first.status()[0].counts.committed + second.status()[0].counts.committed == 1)
    assert begun == ["slow"]


async def test_what_was_not_begun_is_for_other_members_at_once(world: World):
    await world.create()
    await world.write(*(str(number) for number in range(20)))
    app, begun = world.app(), []

    @app.consume(world.topic, values=Text(), retries=NONE, share=True, concurrency=2)
    async def handle(message: Message) -> None:
        begun.append(message.value)
        await asyncio.sleep(0.3)

    async with world.running(app):
        await until(lambda: len(begun) == 2)
    assert len(begun) == 2  # Those ran to their end; nothing else was begun.
    again, left = world.app(), []

    @again.consume(world.topic, values=Text(), retries=NONE, share=True)
    async def next_one(message: Message) -> None:
        left.append(message.value)

    async with world.running(again):
        await until(lambda: len(left) == 18)
        await asyncio.sleep(0.2)
    assert sorted(begun + left, key=int) == [str(number) for number in range(20)]


async def test_what_was_given_out_too_often_is_a_dead_letter_before_the_group_gives_it_up(world: World):
    """Three members die with the record in hand; the group's limit is five deliveries."""
    await world.create()
    await world.set_group(**{"share.auto.offset.reset": "earliest"})
    await world.write("deadly")
    for number in range(3):
        await _take_and_die(world, f"mortal-{number}")
    app, seen = world.app(), []

    @app.consume(world.topic, values=Text(), retries=Retries(), share=True)
    async def handle(message: Message) -> None:
        seen.append(message.value)

    async with world.running(app):
        (letter,) = await world.read(f"{world.topic}.dlq", 1)
    assert seen == []
    assert letter.raw_value == b"deadly"
    assert b"DeliveriesSpentError" in (letter.header("tailrace.retry.error.class") or b"")
    assert b"given out 4 times" in (letter.header("tailrace.retry.error.message") or b"")


async def _take_and_die(world: World, member_id: str) -> None:
    cluster = open_cluster(ParsedOptions(world.options, {}).bootstrap)
    consumer = ShareConsumer(cluster, ShareOptions(world.group, (world.topic,), member_id))
    async with asyncio.timeout(DEADLINE_S):
        while not (await consumer.poll(100))[0]:
            pass
    consumer.abandon()
    cluster.close()
