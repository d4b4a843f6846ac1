"""What operators do in a run, and what they were told.

They make, grow and delete topics, change settings, move replicas and let leaders be elected, all with our own admin
client against any broker.

What was confirmed is kept, and must be so in the metadata at the end; what failed, or was not answered, may be either
way from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.client.admin import RESOURCE_TOPIC, Admin
from tailrace.client.metadata import Cluster
from tailrace.controller.image import MetadataImage
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.random import SimRandom

_PAUSE_SECONDS = 1.5
_SETTING = "retention.ms"
_SPARE_TOPICS_MAX = 4


@dataclass
class _Topic:
    id: bytes
    partition_count: int
    settings: dict[str, str] = field(default_factory=dict)


class Operator:
    """`topics` are those of the clients: they are moved and led elsewhere, never deleted."""

    def __init__(
        self,
        random: SimRandom,
        topics: Sequence[TopicPartition],
        broker_ids: Sequence[int],
        *,
        growing: Sequence[str] = (),
    ) -> None:
        """`growing` are topics of the clients that get partitions, which nobody writes to: groups have to notice."""
        self._random = random
        self._partitions = list(topics)
        self._growing = list(growing)
        self._broker_ids = list(broker_ids)
        self._confirmed: dict[str, _Topic | None] = {}  # None: deleted
        self._names = 0
        self._is_stopping = False

    async def run(self, cluster: Cluster) -> None:
        admin = Admin(cluster)
        actions: list[Callable[[Admin], Coroutine[Any, Any, None]]] = [
            self._create,
            self._create,
            self._grow,
            self._set,
            self._delete,
            self._move,
            self._move,
            self._elect,
        ]
        actions += [self._grow_shared] if self._growing else []
        while not self._is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _PAUSE_SECONDS))
            try:
                await self._random.choice(actions)(admin)
            except KafkaError:
                continue
        cluster.close()

    def stop(self) -> None:
        self._is_stopping = True

    def check(self, image: MetadataImage) -> None:
        """What was confirmed is there."""
        for name, confirmed in self._confirmed.items():
            found = image.topics.get(name)
            if confirmed is None:
                demand(found is None, "a deleted topic stays deleted", topic=name)
                continue
            demand(found is not None and found.id == confirmed.id, "a confirmed topic is there", topic=name)
            assert found is not None, "as was demanded"
            demand(len(found.partitions) == confirmed.partition_count, "a topic keeps its partitions", topic=name)
            settings = image.config(RESOURCE_TOPIC, name)
            for setting, value in confirmed.settings.items():
                demand(settings.get(setting) == value, "a confirmed setting is there", topic=name, setting=setting)

    # ---- what is done; the outcome is unknown until it was answered

    async def _create(self, admin: Admin) -> None:
        if self._names < _SPARE_TOPICS_MAX:
            self._names += 1
            count = 1 + self._random.randrange(2)
            created = await admin.create_topic(f"spare-{self._names}", partition_count=count)
            self._confirmed[created.name] = _Topic(created.id, count)

    async def _grow(self, admin: Admin) -> None:
        name, topic = self._pick()
        if topic is not None:
            await admin.create_partitions(name, topic.partition_count + 1)
            topic.partition_count += 1
            self._confirmed[name] = topic

    async def _grow_shared(self, admin: Admin) -> None:
        """Once each, whether that is confirmed or not."""
        if self._growing:
            name = self._growing.pop()
            found = await admin.cluster.refresh([name])
            await admin.create_partitions(name, len(found[name].partitions) + 1)

    async def _set(self, admin: Admin) -> None:
        name, topic = self._pick()
        if topic is not None:
            value = str(10_000_000 + self._random.randrange(1000))
            await admin.alter_configs(RESOURCE_TOPIC, name, changes={_SETTING: value})
            topic.settings[_SETTING] = value
            self._confirmed[name] = topic

    async def _delete(self, admin: Admin) -> None:
        name, topic = self._pick()
        if topic is not None:
            await admin.delete_topic(name)
            self._confirmed[name] = None

    def _pick(self) -> tuple[str, _Topic | None]:
        """A topic whose state is known. It is not, until the next confirmation."""
        names = [name for name, topic in self._confirmed.items() if topic is not None]
        if not names:
            return "", None
        name = self._random.choice(names)
        return name, self._confirmed.pop(name)

    async def _move(self, admin: Admin) -> None:
        """To other replicas, or to the same in another order; some moves are taken back."""
        partition = self._random.choice(self._partitions)
        count = min(len(self._broker_ids), 2 + self._random.randrange(2))
        await admin.reassign_partitions({partition: self._random.shuffled(self._broker_ids)[:count]})
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.random())
            await admin.reassign_partitions({partition: None})

    async def _elect(self, admin: Admin) -> None:
        await admin.elect_leaders([self._random.choice(self._partitions)])
