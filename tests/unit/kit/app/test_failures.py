"""What becomes of records whose handlers fail: each way that the settings name, on a real broker."""

import asyncio
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tailrace.client.partitioner import partition_for_key
from tailrace.kit import Json, Message, Producer, Text
from tailrace.kit.app import App, Deduplicate, HandlerStopError, Reject, Retries
from tailrace.kit.claims import Claims
from tests.unit.kit.app.conftest import World, until

QUICK = Retries(on_the_spot=0, steps=("50ms", "60ms"))


async def test_by_every_retry_topic_to_the_dead_letters(world: World):
    await world.create(partitions=2)
    await world.write("good", "bad", key="k")
    app, seen = world.app(), []

    @app.consume(world.topic, values=Text(), retries=QUICK)
    async def handle(message: Message) -> None:
        seen.append((message.value, message.topic, message.offset, message.timestamp))
        if message.value == "bad":
            raise KeyError("customer")

    async with world.running(app):
        (letter,) = await world.read(f"{world.topic}.dlq", 1)
    await world.read(f"{world.topic}.retry.50ms", 1)
    await world.read(f"{world.topic}.retry.60ms", 1)
    assert (letter.raw_key, letter.raw_value) == (b"k", b"bad")
    assert letter.header("tailrace.retry.attempts") == b"3"
    assert letter.header("tailrace.retry.group") == world.group.encode()
    assert letter.header("__connect.errors.exception.message") == b"'customer'"
    # The handler is given the same event each time, as it was at first.
    assert len(seen) == 4
    assert len({place for place in seen if place[0] == "bad"}) == 1


async def test_attempts_on_the_spot_leave_no_trace(world: World):
    await world.create()
    await world.write("shaky")
    app, attempts = world.app(), []

    @app.consume(world.topic, retries=Retries(on_the_spot=3, back_off_ms=10, steps=()))
    async def handle(message: Message) -> None:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) < 4:
            raise TimeoutError

    async with world.running(app):
        await until(lambda: len(attempts) == 4)
    assert (await world.committed())[f"{world.topic}-0"] == 1
    await world.read(f"{world.topic}.dlq", 0)
    pauses = [after - before for before, after in pairwise(attempts)]
    assert pauses[0] >= 0.009
    assert pauses[2] >= 0.039


@pytest.mark.long
async def test_a_retry_waits_until_it_is_due(world: World):
    await world.create()
    await world.write("once")
    app, times = world.app(), []

    @app.consume(world.topic, retries=Retries(on_the_spot=0, steps=("700ms",)))
    async def handle(message: Message) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise TimeoutError

    async with world.running(app):
        await until(lambda: len(times) == 2)
    assert 0.65 <= times[1] - times[0] < 3


@pytest.mark.parametrize("poison", [b"{", pytest.param(b"\xff\xff", marks=pytest.mark.long)])
async def test_what_cannot_be_read_is_buried_at_once(world: World, poison: bytes):
    await world.create()
    await world.write(poison)
    app = world.app()

    @app.consume(world.topic, values=Json(), retries=QUICK)
    async def handle(message: Message) -> None:
        assert message.value is None, "nobody can read this"

    async with world.running(app):
        (letter,) = await world.read(f"{world.topic}.dlq", 1)
    assert letter.raw_value == poison
    assert letter.header("__connect.errors.stage") == b"VALUE_CONVERTER"
    assert letter.header("tailrace.retry.attempts") == b"1"


async def test_a_handler_may_reject_and_a_setting_too(world: World):
    await world.create()
    await world.write("reject", "value")
    app, attempts = world.app(), Counter()

    @app.consume(world.topic, values=Text(), retries=Retries(on_the_spot=5, never_for=(ValueError,)))
    async def handle(message: Message) -> None:
        attempts[message.value] += 1
        raise Reject("no such customer") if message.value == "reject" else ValueError("x")

    async with world.running(app):
        await world.read(f"{world.topic}.dlq", 2)
    assert attempts == {"reject": 1, "value": 1}


async def test_an_async_handler_that_takes_too_long_has_failed(world: World):
    await world.create()
    await world.write("long", "cancelled")
    app = world.app()

    @app.consume(world.topic, values=Text(), timeout="50ms", retries=Retries(on_the_spot=0, steps=()))
    async def handle(message: Message) -> None:
        if message.value == "cancelled":
            raise asyncio.CancelledError
        await asyncio.sleep(20)

    async with world.running(app):
        letters = await world.read(f"{world.topic}.dlq", 2)
    messages = {letter.raw_value: letter.header("__connect.errors.exception.class.name") for letter in letters}
    assert messages == {
        b"long": b"tailrace.kit.app.calling.HandlerTimeoutError",
        b"cancelled": b"asyncio.exceptions.CancelledError",
    }


async def test_without_dead_letters_it_stops_there(world: World):
    await world.create()
    await world.write("1", "2", "bad", "3")
    app = world.app()

    @app.consume(
        world.topic, values=Text(), retries=Retries(on_the_spot=1, back_off_ms=1, steps=(), dead_letters=False)
    )
    async def handle(message: Message) -> None:
        if message.value == "bad":
            raise RuntimeError("no luck")

    with pytest.raises(HandlerStopError, match=r"failed for the last time with .* at offset 2: RuntimeError"):
        await asyncio.wait_for(app.serve(), 20)
    assert (await world.committed())[f"{world.topic}-0"] == 2


async def test_who_keeps_order_parks_what_comes_behind(world: World):
    await world.create()
    await world.write("a1", "a2", key="a")
    await world.write("b1", "b2", key="b")
    app, seen = world.app(), []

    @app.consume(
        world.topic,
        values=Text(),
        retries=Retries(on_the_spot=1, back_off_ms=50, steps=("200ms",), keep_order=True),
    )
    async def handle(message: Message) -> None:
        seen.append(message.value)
        if message.value == "a1" and seen.count("a1") < 4:
            raise RuntimeError("not yet")

    async with world.running(app):
        await until(lambda: "a2" in seen)
        letters = await world.read(f"{world.topic}.dlq", 1)
    # b goes on at once; a2 comes after a1 has gone to the dead letters at its third attempt.
    assert seen == ["a1", "b1", "b2", "a1", "a1", "a2"]
    assert letters[0].raw_value == b"a1"


async def test_retries_are_for_the_group_that_failed(world: World):
    await world.create()
    await world.write("order")
    app, seen = world.app(), Counter()

    @app.consume(world.topic, retries=QUICK)
    async def fails_once(message: Message) -> None:
        seen["fails"] += 1
        if seen["fails"] == 1:
            raise TimeoutError

    @app.consume(world.topic, group=f"{world.group}-other", retries=QUICK)
    async def works(message: Message) -> None:
        seen["works"] += 1

    async with world.running(app):
        await until(lambda: seen["fails"] == 2)
        other = next(each for each in app.status() if each.name == "works")
        await until(lambda: other.counts.skipped == 1)
    assert seen == {"fails": 2, "works": 1}


async def test_outputs_are_written_once_with_the_offset(world: World):
    target = f"{world.topic}-out"
    await world.create(partitions=2)
    await world.create(topic=target)
    await world.write(*(str(number) for number in range(40)))
    app, attempts = world.app(), Counter()

    @app.process(world.topic, target, values=Text(), retries=Retries(on_the_spot=1, back_off_ms=1, steps=()))
    async def double(message: Message) -> object:
        attempts[message.value] += 1
        if attempts[message.value] == 1 and int(message.value) % 3 == 0:
            raise TimeoutError
        number = int(message.value)
        return None if number == 0 else [str(number), str(-number)] if number == 1 else str(number)

    async with world.running(app):
        found = await world.read(target, 40)
    assert Counter(int(message.raw_value) for message in found) == Counter([*range(1, 40), -1])


@pytest.mark.long
async def test_an_output_that_cannot_be_written_is_the_handlers_failure(world: World):
    await world.create()
    await world.create(topic=f"{world.topic}-out")
    await world.write("x")
    app = world.app()

    @app.process(world.topic, f"{world.topic}-out", retries=Retries(on_the_spot=0, steps=()))
    async def handle(message: Message) -> object:
        return object()

    async with world.running(app):
        (letter,) = await world.read(f"{world.topic}.dlq", 1)
    assert b"cannot be written to topic" in (letter.header("__connect.errors.exception.message") or b"")


async def test_copies_of_an_event_are_passed_over(world: World):
    """Also in the next life of the application, and while the event is on its way through retries."""
    await world.create(partitions=2)
    seen: Counter[str] = Counter()

    def life() -> App:
        app = world.app()

        @app.consume(
            world.topic, values=Json(), retries=QUICK, deduplicate=Deduplicate(lambda event: event.value["id"])
        )
        async def handle(message: Message) -> None:
            seen[message.value["id"]] += 1
            if message.value["id"] == "bad":
                raise TimeoutError

        return app

    for key in "ab":
        await world.write({"id": f"{key}1"}, {"id": f"{key}1"}, {"id": "bad"}, {"id": "bad"}, key=key)
    app = life()
    async with world.running(app):
        await until(lambda: bool(app.status()) and app.status()[0].counts.skipped >= 2)
        await world.read(f"{world.topic}.dlq", len({partition_for_key(key, 2) for key in (b"a", b"b")}))
    again = life()
    for key in "ab":
        await world.write({"id": f"{key}1"}, {"id": f"{key}2"}, key=key)
    async with world.running(again):
        await until(lambda: seen["a2"] == seen["b2"] == 1 and again.status()[0].counts.skipped == 2)
    assert {name: seen[name] for name in ("a1", "a2", "b1", "b2")} == dict.fromkeys(("a1", "a2", "b1", "b2"), 1)


@pytest.mark.long
async def test_an_event_without_an_id_is_handled_and_a_replayed_one_too(world: World):
    await world.create()
    await world.write(b"not json", b'{"id": null}', b'{"id": null}')
    app, seen = world.app(), Counter()

    @app.consume(
        world.topic,
        retries=QUICK,
        deduplicate=Deduplicate(lambda event: Json().deserialize(event.raw_value, "t", "value", ())["id"]),
    )
    async def handle(message: Message) -> None:
        seen[message.raw_value] += 1

    async with world.running(app):
        await until(lambda: seen.total() == 3)


async def test_a_dead_letter_takes_its_object_along(world: World, tmp_path: Path):
    (tmp_path / "store").mkdir()
    await world.create()
    async with Claims(f"file://{tmp_path}/store", threshold_bytes=10) as claims:
        async with Producer(world.options) as producer:
            await claims.produce(producer, world.topic, b"a large value")
        app, seen = world.app(), []

        @app.consume(world.topic, retries=Retries(on_the_spot=0, steps=()), claims=claims)
        async def handle(message: Message) -> None:
            seen.append(await claims.resolve(message))
            raise ValueError

        async with world.running(app):
            (letter,) = await world.read(f"{world.topic}.dlq", 1)
        shutil.rmtree(tmp_path / "store" / world.topic)  # Its days are over.
        assert seen == [b"a large value"]
        assert await claims.resolve(letter) == b"a large value"
