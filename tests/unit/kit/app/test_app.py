"""Handlers at work on a real broker: what they get, in which order, and what is committed when they stop."""

import asyncio
import json
import random
import threading
import time
from collections import Counter, defaultdict

import pytest

from tailrace.kit import Message, Text
from tailrace.kit.app import App, Deduplicate, Retries, SettingError, TopicMissingError
from tests.unit.kit.app.conftest import World, until

NONE = Retries(on_the_spot=0, steps=())


async def test_an_async_and_a_plain_handler_get_everything_once(world: World):
    await world.create(partitions=2)
    await world.write(*(str(number) for number in range(200)))
    app, seen, threads = world.app(), Counter(), set()

    @app.consume(world.topic, values=Text(), retries=NONE)
    async def on_the_loop(message: Message) -> None:
        seen["async", message.value] += 1

    @app.consume(world.topic, group=f"{world.group}-plain", values=Text(), retries=NONE, concurrency=4)
    def in_a_thread(message: Message) -> None:
        threads.add(threading.current_thread().name)
        time.sleep(0.001)
        seen["plain", message.value] += 1

    async with world.running(app):
        await until(lambda: len(seen) == 400)
    assert set(seen.values()) == {1}
    assert threads == {"tailrace handler"}
    # Everything was committed: who comes next has nothing to do.
    again = world.app()

    @again.consume(world.topic, values=Text(), retries=NONE)
    async def next_one(message: Message) -> None:
        seen["again", message.value] += 1

    async with world.running(again):
        await world.write("last")
        await until(lambda: seen["again", "last"] == 1)
    assert sum(name == "again" for name, _ in seen) == 1


async def test_records_of_a_key_run_in_order_and_others_beside_them(world: World):
    await world.create(partitions=2)
    for key in "abcdef":
        await world.write(*(f"{key}{number}" for number in range(20)), key=key)
    app = world.app()
    order: dict[str, list[int]] = defaultdict(list)
    running: Counter[str] = Counter()
    beside: list[int] = []

    @app.consume(world.topic, values=Text(), retries=NONE)
    async def handle(message: Message) -> None:
        key, number = message.value[0], int(message.value[1:])
        running[key] += 1
        assert running[key] == 1, "another one of the key is at work"
        beside.append(running.total())
        await asyncio.sleep(random.random() / 200)
        order[key].append(number)
        running[key] -= 1

    async with world.running(app):
        await until(lambda: sum(map(len, order.values())) == 120)
    assert all(numbers == list(range(20)) for numbers in order.values())
    assert len(order) == 6
    assert max(beside) > 2


@pytest.mark.long
async def test_order_of_a_partition(world: World):
    await world.create()
    await world.write(*(str(number) for number in range(30)))
    app, seen = world.app(), []

    @app.consume(world.topic, values=Text(), retries=NONE, order="partition")
    async def handle(message: Message) -> None:
        await asyncio.sleep(random.random() / 500)
        seen.append(int(message.value))

    async with world.running(app):
        await until(lambda: len(seen) == 30)
    assert seen == list(range(30))


async def test_a_stop_waits_for_those_at_work_and_commits_them(world: World):
    await world.create()
    await world.write("slow", "slow", "slow")
    app, begun, done = world.app(), [], []

    @app.consume(world.topic, values=Text(), retries=NONE)
    async def handle(message: Message) -> None:
        begun.append(message.offset)
        await asyncio.sleep(0.5)
        done.append(message.offset)

    async with world.running(app):
        await until(lambda: len(begun) == 3)
        assert not done
    assert sorted(done) == [0, 1, 2]
    assert (await world.committed())[f"{world.topic}-0"] == 3


async def test_members_hand_over_without_repeating_anything(world: World):
    await world.create(partitions=4)
    await world.write(*(str(number) for number in range(300)))
    seen: Counter[str] = Counter()

    def member() -> App:
        app = world.app()

        @app.consume(world.topic, values=Text(), retries=NONE, concurrency=2)
        async def handle(message: Message) -> None:
            await asyncio.sleep(0.005)
            seen[message.value] += 1

        return app

    first, second = member(), member()
    async with world.running(second):
        async with world.running(first):
            await until(lambda: seen.total() > 60 and bool(first.status()[0].assignment))
            await until(lambda: 0 < len(second.status()[0].assignment) < 4)
        await until(lambda: len(seen) == 300)
    assert set(seen.values()) == {1}


async def test_a_slow_handler_stays_a_member_and_others_go_on(world: World):
    """Though it takes longer than the consumer may go without a poll."""
    await world.create()
    await world.write("slow", *(str(number) for number in range(50)))
    app, seen = world.app(max_poll_interval_ms=500), []
    release = asyncio.Event()

    @app.consume(world.topic, values=Text(), retries=NONE, slow_ms=200, window_records=10)
    async def handle(message: Message) -> None:
        if message.value == "slow":
            await release.wait()
        seen.append(message.value)

    async with world.running(app):
        await until(lambda: len(seen) == 9)  # Its window is full then.
        await asyncio.sleep(1)
        (status,) = app.status()
        assert [str(each) for each in status.assignment] == [f"{world.topic}-0"]
        assert [each.offset for each in status.slow] == [0]
        assert len(seen) == 9
        release.set()
        await until(lambda: len(seen) == 51)
    assert len(set(seen)) == 51


async def test_a_plain_handler_that_never_returns_is_told_of_and_not_committed(world: World):
    await world.create()
    await world.write("good", "hangs")
    app, release, seen = world.app(probe_port=0), threading.Event(), []

    @app.consume(world.topic, values=Text(), retries=NONE, slow_ms=100, finish_ms=200)
    def handle(message: Message) -> None:
        seen.append(message.value)
        if message.value == "hangs":
            release.wait(20)

    async with world.running(app):
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(0.3)
        assert (await _ask(app.probe_port, "/health/live"))[0] == 503
    assert (await world.committed())[f"{world.topic}-0"] == 1
    release.set()
    # Once it does return, its thread ends, though nobody waits for it any more.
    await until(lambda: "tailrace handler" not in [each.name for each in threading.enumerate()])


async def test_probes_tell_whether_it_is_ready_and_how_far_behind(world: World):
    await world.create()
    await world.write("1", "2", "3")
    app, release = world.app(probe_port=0), asyncio.Event()

    @app.consume(world.topic, values=Text(), retries=NONE)
    async def handle(message: Message) -> None:
        if message.value == "2":
            await release.wait()

    async with world.running(app):
        await until(lambda: bool(app.status() and app.status()[0].counts.committed == 1))
        assert await _ask(app.probe_port, "/health/live") == (200, {"live": True, "slow": []})
        assert await _ask(app.probe_port, "/health/ready") == (200, {"ready": True})
        code, told = await _ask(app.probe_port, "/status")
        assert code == 200
        assert told["lag"] == {world.group: {f"{world.topic}-0": 2}}
        assert told["handlers"][0]["handler"] == "handle"
        assert (await _ask(app.probe_port, "/passwords"))[0] == 404
        release.set()
        await until(lambda: app.status()[0].counts.committed == 3)


async def _ask(port: int, path: str) -> tuple[int, dict]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_without_its_topic_it_does_not_start(world: World):
    app = world.app()

    @app.consume(world.topic)
    async def handle(message: Message) -> None:
        pass

    with pytest.raises(TopicMissingError, match=f"there is no topic {world.topic} to consume: create it with"):
        await app.serve()


async def test_what_is_declared_wrongly_is_refused(world: World):
    with pytest.raises(SettingError, match="leave the option engine out"):
        world.app(engine="librdkafka")
    app = world.app()
    with pytest.raises(SettingError, match="no handlers"):
        await app.serve()
    with pytest.raises(SettingError, match=r"share=True has no order of its own.*share\.key\.order=true"):
        app.consume(world.topic, share=True, order="key")
    with pytest.raises(SettingError, match="share=True has no order of its own"):
        app.consume(world.topic, share=True, retries=Retries(keep_order=True))
    with pytest.raises(SettingError, match="share=True has no deduplication"):
        app.consume(world.topic, share=True, deduplicate=Deduplicate(lambda message: message.raw_key))
    with pytest.raises(SettingError, match="order='keys' is not known"):
        app.consume(world.topic, order="keys")
    with pytest.raises(SettingError, match="windows is no setting of a handler: there are concurrency"):
        app.consume(world.topic, windows=1)
    with pytest.raises(SettingError, match="concurrency of a handler is 1 or more"):
        app.consume(world.topic, concurrency=0)
    with pytest.raises(SettingError, match="'1 minute' is not a time"):
        app.consume(world.topic, timeout="1 minute")(lambda _message: None)
    with pytest.raises(SettingError, match="exactly_once=False"):
        app.process(world.topic, "other", exactly_once=False)
    app.consume(world.topic)(lambda _message: None)
    with pytest.raises(SettingError, match=f"group {world.group} has a handler of {world.topic} already"):
        app.consume(world.topic)(lambda _message: None)
