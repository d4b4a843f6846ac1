"""Handlers that get lists of messages: what they get, and what becomes of a batch that fails."""

import asyncio
import random
from collections import Counter

import pytest

from tailrace.kit import Consumer, Json, Message, Producer, Text
from tailrace.kit.app import App, Deduplicate, Reject, Retries, SettingError
from tailrace.kit.app.window import Order, Part, Window
from tests.unit.kit.app.conftest import World, until

QUICK = Retries(on_the_spot=0, steps=("50ms",))


async def test_batches_are_of_one_partition_in_order_and_no_longer_than_asked_for(world: World):
    await world.create(partitions=3)
    for key in "abcdefgh":
        await world.write(*(f"{key}{number:03}" for number in range(100)), key=key)
    app, batches, running = world.app(), [], Counter()

    @app.consume(world.topic, values=Text(), batch=64)
    async def handle(messages: list[Message]) -> None:
        where = {message.topic_partition for message in messages}
        running.update(where)
        assert max(running.values()) == 1
        await asyncio.sleep(0.001)
        running.subtract(where)
        batches.append((where, [message.value for message in messages]))

    async with world.running(app):
        await until(lambda: sum(len(values) for _, values in batches) == 800)
        await until(lambda: app.status()[0].counts.committed == 800)
    assert all(len(where) == 1 and 1 <= len(values) <= 64 for where, values in batches)
    assert max(len(values) for _, values in batches) == 64
    seen = [value for _, values in batches for value in values]
    for key in "abcdefgh":
        assert [value for value in seen if value.startswith(key)] == [f"{key}{number:03}" for number in range(100)]
    assert sum((await world.committed()).values()) == 800


async def test_of_a_batch_that_fails_only_the_bad_records_go_their_way(world: World):
    await world.create()
    await world.write(*({"number": number} for number in range(20)), "no json at all", *({"number": 20},))
    app, done, sizes = world.app(), Counter(), []

    @app.consume(world.topic, values=Json(), retries=QUICK, batch=100)
    async def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))
        numbers = [message.value["number"] for message in messages]
        if 13 in numbers:
            raise ConnectionError("thirteen")
        if 7 in numbers and messages[0].header("tailrace.retry.attempts") is None:
            raise ConnectionError("seven, for once")
        done.update(numbers)

    async with world.running(app):
        letters = await world.read(f"{world.topic}.dlq", 2)
        await until(lambda: len(done) == 20)
        await until(lambda: sum(status.counts.committed for status in app.status()) == 24)
    assert {letter.header("tailrace.retry.offset") for letter in letters} == {b"13", b"20"}
    by_offset = {letter.header("tailrace.retry.offset"): letter for letter in letters}
    assert by_offset[b"13"].header("tailrace.retry.attempts") == b"2"  # The attempt of the whole batch is not counted.
    assert by_offset[b"20"].header("tailrace.retry.attempts") == b"1"
    assert {number for number, count in done.items() if count == 1} == set(range(21)) - {13}
    assert 1 in sizes
    assert max(sizes) > 10


async def test_a_plain_function_gets_lists_and_a_record_that_was_replayed_is_alone(world: World):
    await world.create()
    await world.write("a", "b")
    async with Producer(world.options) as producer:
        await producer.produce(world.topic, "again", headers={"tailrace.retry.group": world.group})
        await producer.produce(world.topic, "other", headers={"tailrace.retry.group": "another"})
        await producer.produce(world.topic, "plain", headers={"source": "web"})
    await world.write("c")
    app, batches = world.app(), []

    @app.consume(world.topic, values=Text(), batch=10)
    def handle(messages: list[Message]) -> None:
        batches.append([message.value for message in messages])

    async with world.running(app):
        await until(lambda: sum(map(len, batches)) == 5)
        assert app.status()[0].counts.skipped == 1
    assert ["again"] in batches
    assert [value for values in batches for value in values] == ["a", "b", "again", "plain", "c"]


async def test_a_batch_that_takes_too_long_has_failed(world: World):
    await world.create()
    await world.write("slow", "quick")
    app, done = world.app(), []

    @app.consume(world.topic, values=Text(), retries=Retries(on_the_spot=0, steps=()), batch=10, timeout="100ms")
    async def handle(messages: list[Message]) -> None:
        if messages[0].value == "slow":
            await asyncio.sleep(60)
        done.extend(message.value for message in messages)

    async with world.running(app):
        (letter,) = await world.read(f"{world.topic}.dlq", 1)
        await until(lambda: "quick" in done)
    assert letter.raw_value == b"slow"


async def test_without_dead_letters_it_stops_with_what_is_before_committed(world: World):
    await world.create()
    await world.write(*map(str, range(10)))
    app = world.app()

    @app.consume(world.topic, values=Text(), retries=Retries(on_the_spot=0, steps=(), dead_letters=False), batch=100)
    async def handle(messages: list[Message]) -> None:
        if any(message.value == "6" for message in messages):
            raise Reject("six")

    with pytest.raises(Exception, match="six"):
        async with asyncio.timeout(20):
            await app.serve()
    assert await world.committed() == {f"{world.topic}-0": 6}
    async with Consumer(
        world.options, group_id=world.group, auto_offset_reset="earliest", topics=[world.topic]
    ) as rest:
        found: list[Message] = []
        await until(lambda: _more(rest, found))
    assert [message.raw_value for message in found] == [b"6", b"7", b"8", b"9"]


async def _more(consumer: Consumer, found: list[Message]) -> bool:
    found += await consumer.poll(0.2)
    return len(found) >= 4


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"batch": 0}, "1 or more"),
        ({"batch": 5, "order": "key"}, "many keys"),
        ({"batch": 5, "share": True}, "share=True"),
        ({"batch": 5, "deduplicate": Deduplicate(lambda message: message.raw_key)}, "deduplicate"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict, why: str):
    with pytest.raises(SettingError, match=why):
        App("billing", bootstrap_servers="127.0.0.1:1").consume("orders", **settings)


@pytest.mark.parametrize("order", [Order.PARTITION, Order.NONE])
@pytest.mark.parametrize("seed", range(20))
def test_a_window_commits_what_is_finished_whatever_was_split(order: Order, seed: int):
    """Against a model: the offsets that are not done."""
    chance = random.Random(seed)
    window: Window[list[int], int] = Window(order, records_max=50, bytes_max=10**6)
    unfinished: set[int] = set()
    runnable, taken, offset, committed, written = [], 0, 0, 0, []
    for _ in range(300):
        step = chance.random()
        if step < 0.4 and not window.is_full:
            offset += chance.choice((0, 0, 1))  # a gap
            offsets = list(range(offset, offset + chance.randrange(1, 8)))
            entry = window.add(
                offsets[0], offsets, key=None, size_bytes=9, records=len(offsets), last_offset=offsets[-1]
            )
            unfinished.update(offsets)
            offset = offsets[-1] + 1
            taken += len(offsets)
            runnable += [entry] if entry else []
        elif step < 0.6 and runnable:
            entry = runnable.pop(chance.randrange(len(runnable)))
            parts = [Part(each, [each], 3) for each in entry.item]
            runnable += window.split(entry, parts)
        elif step < 0.9 and runnable:
            entry = runnable.pop(chance.randrange(len(runnable)))
            following = window.finish(entry, [entry.offset])
            unfinished.difference_update(entry.item)
            runnable += [following] if following else []
        elif (finished := window.decide_commit(writes_max=3)) is not None:
            assert finished.position <= min(unfinished, default=offset)
            assert not any(each < finished.position for each in unfinished)
            window.note_committed(finished)
            committed += finished.records
            written += finished.writes
        assert len(runnable) <= 1 or order is Order.NONE
    while runnable:
        entry = runnable.pop()
        following = window.finish(entry, [entry.offset])
        runnable += [following] if following else []
    while (finished := window.decide_commit(writes_max=3)) is not None:
        window.note_committed(finished)
        committed, position = committed + finished.records, finished.position
        written += finished.writes
        assert position <= offset
    assert committed == taken
    assert written == sorted(set(written))
    assert window.first_offset is None
    assert window.has_room
