"""What goes wrong while a partition moves to another member, and while a store is away."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from tailrace.kit import Message, Producer, Text
from tailrace.kit.app import App, Retries
from tailrace.kit.claims import Claims
from tailrace.model.ports import StoreError
from tests.unit.kit.app.conftest import World, until

pytestmark = pytest.mark.long
NONE = Retries(on_the_spot=0, steps=())


@pytest.mark.parametrize("is_plain", [False, True], ids=["async", "thread"])
async def test_a_handler_that_never_returns_holds_up_no_rebalance(world: World, is_plain: bool):
    """Its partition moves after finish_ms; whoever gets it handles the record, and what hung commits nothing."""
    await world.create(partitions=2)
    release, loop_release, seen = threading.Event(), asyncio.Event(), Counter()

    def member(name: str, *, is_stuck: bool) -> App:
        app = world.app()
        if is_plain:

            @app.consume(world.topic, values=Text(), retries=NONE, finish_ms=500)
            def in_a_thread(message: Message) -> None:
                if is_stuck:
                    seen["stuck"] += 1
                    release.wait(30)
                    raise ValueError("too late to move anything")
                seen[name, message.value] += 1
        else:

            @app.consume(world.topic, values=Text(), retries=NONE, finish_ms=500)
            async def on_the_loop(message: Message) -> None:
                if is_stuck:
                    seen["stuck"] += 1
                    await loop_release.wait()
                    raise ValueError("too late to move anything")
                seen[name, message.value] += 1

        return app

    first, second = member("first", is_stuck=True), member("second", is_stuck=False)
    for key in "abcdefgh":
        await world.write(key, key=key)
    async with world.running(second):
        async with world.running(first):
            # The second one came first and has done all; what comes now is for both.
            await until(lambda: sum(seen["second", key] for key in "abcdefgh") + seen["stuck"] >= 8)
            await until(lambda: bool(first.status()[0].assignment))
            for key in "ijklmnop":
                await world.write(key, key=key)
            await until(lambda: seen["stuck"] > 0)
        release.set()
        loop_release.set()
        await until(lambda: all(seen["second", key] for key in "abcdefghijklmnop"))
    assert await world.read(f"{world.topic}.dlq", 0) == []


async def test_a_move_waits_while_the_store_is_away(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "store").mkdir()
    monkeypatch.setattr("tailrace.kit.app.handling._STORE_AWAY_MS", 100)
    await world.create()
    async with Claims(f"file://{tmp_path}/store", threshold_bytes=10) as claims:
        async with Producer(world.options) as producer:
            await claims.produce(producer, world.topic, b"a large value")
        app, asked, move = world.app(), Counter(), claims.move

        async def away_for_a_while(*given: object) -> bytes | None:
            asked["moves"] += 1
            if asked["moves"] < 4:
                raise StoreError("nobody answers")
            return await move(*given)

        monkeypatch.setattr(claims, "move", away_for_a_while)

        @app.consume(world.topic, retries=NONE, claims=claims)
        async def handle(_message: Message) -> None:
            raise ValueError

        async with world.running(app):
            await until(lambda: asked["moves"] >= 2)
            assert (await world.committed()).get(f"{world.topic}-0", 0) == 0
            (letter,) = await world.read(f"{world.topic}.dlq", 1)
        assert await claims.resolve(letter) == b"a large value"
    assert await world.committed() == {f"{world.topic}-0": 1}
