"""Letters are settled once, though whoever settles them dies at any point, or somebody else does the same."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from tailrace.client.admin import Admin
from tailrace.client.consumer import Consumer, ConsumerOptions
from tailrace.client.fetching import Isolation
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer
from tailrace.client.transactions.errors import FencedError
from tailrace.client.transactions.producer import TransactionalProducer
from tailrace.kit.letters import desk
from tailrace.kit.letters.desk import Desk
from tailrace.kit.letters.letter import Letter
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker

_serial = itertools.count()
LETTERS = 23
PLACE = PartitionIndex(0)


class DiedError(Exception):
    pass


class World:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"desk-{next(_serial)}"
        self.topic = f"{self.name}.dlq"

    def cluster(self) -> Cluster:
        return Cluster(real_ports(), parse_bootstrap(self.bootstrap))

    async def prepare(self) -> None:
        cluster = self.cluster()
        for name in (self.name, self.topic):
            await Admin(cluster).create_topic(name)
        async with Producer(cluster) as producer:
            for number in range(LETTERS):
                await producer.send(self.topic, b"%d" % number)
        cluster.close()

    async def settle(self) -> None:
        """Every third letter goes back."""
        cluster = self.cluster()
        opened = Desk(cluster, self.topic, timeout_ms=10_000)
        try:
            await opened.settle(_is_chosen, lambda _letter: self.name)
        finally:
            opened.close()
            cluster.close()

    async def read(self, topic: str) -> Counter[bytes]:
        cluster = self.cluster()
        place = TopicPartition(topic, PLACE)
        consumer = Consumer(cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED, fetch_max_wait_ms=50))
        await consumer.assign(await consumer.offsets_at([place], -2))
        (end,) = (await consumer.offsets_at([place], -1)).values()
        found: Counter[bytes] = Counter()
        async with asyncio.timeout(20):
            while consumer.position(place).offset < end:
                found.update(record.value for record in (await consumer.poll(200)).get(place, []))
        await consumer.close()
        cluster.close()
        return found

    async def waiting(self) -> Counter[bytes]:
        cluster = self.cluster()
        opened = Desk(cluster, self.topic, timeout_ms=10_000)
        found = Counter([letter.record.value async for letter in opened.waiting()])
        opened.close()
        cluster.close()
        return found


def _is_chosen(letter: Letter) -> bool:
    return int(letter.record.value or b"") % 3 == 0


@pytest.fixture
async def world(tailrace_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(desk, "_LETTERS_MAX", 5)  # So that there are several transactions.
    world = World(tailrace_broker.bootstrap)
    await world.prepare()
    return world


def _dies(method: Callable[..., object], count: int, *, after: bool) -> Callable[..., object]:
    left = count

    async def mortal(*given: object) -> None:
        nonlocal left
        left -= 1
        if left or after:
            await method(*given)
        if not left:
            raise DiedError

    return mortal


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("after", [False, True])
async def test_deaths_around_each_commit(world: World, monkeypatch: pytest.MonkeyPatch, count: int, after: bool):
    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "commit", _dies(TransactionalProducer.commit, count, after=after))
        with pytest.raises(DiedError):
            await world.settle()
    await world.settle()
    await _assert_settled(world)


async def test_a_death_before_the_settled_ones_are_deleted(world: World, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "delete_records", _dies(Admin.delete_records, 1, after=False))
        with pytest.raises(DiedError):
            await world.settle()
    assert sum((await world.waiting()).values()) == LETTERS - 8
    await world.settle()
    await _assert_settled(world)
    assert await world.read(world.topic) == await world.waiting()


async def test_two_at_once(world: World):
    """One of them is fenced, or they come one after the other."""
    found = await asyncio.gather(world.settle(), world.settle(), return_exceptions=True)
    assert all(each is None or isinstance(each, FencedError) or "fenced" in str(each).lower() for each in found), found
    await world.settle()
    await _assert_settled(world)


async def _assert_settled(world: World) -> None:
    chosen = {b"%d" % number: 1 for number in range(0, LETTERS, 3)}
    assert await world.read(world.name) == chosen
    assert await world.waiting() == {b"%d" % number: 1 for number in range(LETTERS) if number % 3}
