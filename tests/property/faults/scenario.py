"""Life after life of one broker on one simulated disk, all of it decided by a seed.

A life is a start, a check of everything against the model, some work, and an end: a clean stop, the death of the
process at a moment or in the middle of an operation of the disk, or a power loss. Between two lives files that can
be rebuilt may be damaged. `tailrace.sim.scenario` does this to clusters, where one replica may have what another has
lost; here a single disk has to keep all that was promised, with every kind of topic and setting.
"""

import asyncio
import errno
import logging
from collections.abc import Coroutine
from itertools import count
from random import Random
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.controller.image import MetadataImage
from tailrace.model.errors import KafkaError, StorageError
from tailrace.sim.checks.history import ViolationError, demand
from tailrace.sim.loop import DeadError
from tests.property.faults.checks import check_files, check_partition
from tests.property.faults.model import PartitionModel, TopicModel, TopicState
from tests.property.faults.workload import Workload
from tests.property.faults.world import DATA, make_node, make_world

_TOPIC = 2
_DAMAGED = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")
_LOOK_SECONDS = 0.01
_START_SECONDS_MAX = 300.0
_DEATH_SECONDS_MAX = 1.0  # until a death is noticed
_LIFE_SECONDS_MAX = 100_000.0


class Scenario:
    def __init__(self, seed: int, *, lives: int = 6, steps: int = 60) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.world = make_world(self.random)
        self.node = make_node(self.world)
        self.disk = self.node.disk
        self.topics: dict[str, TopicModel] = {}
        self.alternatives: dict[str, list[TopicState]] = {}
        self.lives = lives
        self.steps = steps
        self.life = 0
        self.power_failed = False  # since everything was last checked
        self.damaged: set[str] = set()  # since then: kinds of files
        self._numbers = count(1)
        self._errors: list[str] = []
        self._had_bad_snapshots = False  # one that was not needed stays as it is

    @property
    def story(self) -> list[str]:
        return list(self.world.trace.lines)

    def run(self) -> None:
        loop, trace = self.world.loop, self.world.trace
        loop.set_exception_handler(self._on_loop_error)
        trace.on_error = self._on_error
        with trace.listening():
            try:
                loop.run_until_complete(self._run())
            finally:
                loop.close()

    async def _run(self) -> None:
        while self.life < self.lives:
            await self._live(is_last=False)
            self.life += 1
        await self._live(is_last=True)

    async def _live(self, *, is_last: bool) -> None:
        end = "stop" if is_last else self.random.choice(["stop", "kill", "kill", "die", "die", "die at start"])
        power_fails = not is_last and self.random.random() < 0.4
        self._note(f"{self.life}: {end}{' and power loss' if power_fails else ''}")
        stopped = await self._spend_life(end)
        was_faulty = self.node.is_sabotaged
        demand(self.node.failure is None, "a broker finds its own state right", failure=self.node.failure)
        demand(not self._errors, "nothing fails that should not", errors=self._errors)
        self.node.kill()
        if stopped and not was_faulty:
            check_files(self.disk, with_snapshots=not self._had_bad_snapshots)
            for partition in self._partitions():
                partition.durable_end = max(partition.durable_end, partition.acked_end)
        self.power_failed |= power_fails
        self._had_bad_snapshots |= power_fails
        self.disk.crash()
        self.disk.heal()
        if power_fails:
            self.node.lose_power()
        if self.random.random() < 0.3:
            self._damage()

    async def _spend_life(self, end: str) -> bool:
        """Whether it ended with a clean stop."""
        node = self.node
        node.start()
        node.background.extra_ms = self.random.choice([0, 0, 0, 5, 50, 400])
        if end == "die at start":
            self._die_after(self.random.randrange(60))
        await self._wait_started()
        if not node.is_up:
            return False
        self.disk.heal()
        if not await self._wait_done(self._work(end)):
            return False
        self.disk.heal()
        if end == "die" and self.random.random() < 0.5:
            self._die_after(self.random.randrange(30))
        if end not in ("stop", "die"):
            return False
        broker = node.broker
        assert broker is not None
        return await self._wait_done(broker.stop())

    async def _work(self, end: str) -> None:
        """In the process of the broker, and so gone with it."""
        assert self.node.broker is not None
        self._check_all(self.node.broker)
        workload = Workload(
            self.node, self.random, self.topics, self.alternatives, life=self.life, numbers=self._numbers
        )
        if end == "die":
            self._die_after(self.random.randrange(300))
        clients = self.random.choice([1, 1, 2, 4])
        work = [workload.run(self.steps // clients) for _ in range(clients)]
        if self.random.random() < 0.4:
            work.append(self._sabotage())
        await asyncio.gather(*work)

    async def _wait_started(self) -> None:
        loop = self.world.loop
        deadline = loop.now + _START_SECONDS_MAX
        while self.node.is_up and not self.node.is_ready:
            demand(loop.now < deadline, "a broker starts in time")
            await asyncio.sleep(_LOOK_SECONDS)
        demand(self.node.refusal is None, "a broker starts", refusal=self.node.refusal)

    async def _wait_done(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Does it in the broker's process. Whether it was done: the process may die meanwhile."""
        process, loop = self.node.process, self.world.loop
        assert process is not None
        doing = process.spawn(coroutine, name="life")
        deadline = loop.now + _LIFE_SECONDS_MAX
        while self.node.process is process and not doing.done():
            demand(loop.now < deadline, "nobody waits for ever")
            await asyncio.wait({doing}, timeout=_DEATH_SECONDS_MAX)
        if self.node.process is not process:
            return False
        doing.result()
        return True

    # Faults

    def _note(self, text: str) -> None:
        self.world.trace.note("world", text)

    def _die_after(self, operations: int) -> None:
        self.disk.die_after(operations, torn_bytes=self.random.randrange(200), on_death=self.node.kill)

    async def _sabotage(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            await asyncio.sleep(self.random.random() * 4)
            self.node.is_sabotaged = True
            self._break_disk()
            await asyncio.sleep(self.random.random() * 3)
            self.disk.heal()

    def _break_disk(self) -> None:
        kind = self.random.choice(["full", "full", "read-only", "EIO", "EIO", "EIO", "EIO"])
        if kind == "full":
            self.disk.fill(left_bytes=self.random.randrange(3000))
        elif kind == "read-only":
            self.disk.is_read_only = True
        else:
            operation = self.random.choice(
                ["append", "append", "sync", "read", "rename", "remove", "create", "replace", "truncate", "sync_folder"]
            )
            pattern = self.random.choice(
                ["*", "*.log", f"{DATA}/a-*", "*.*index*", "*__cluster_metadata*", "*.snapshot"]
            )
            self.disk.fail(operation, pattern, error=errno.EIO, count=self.random.choice([1, 2, 5, 1 << 30]))
            kind = f"EIO {operation} {pattern}"
        self._note(f"the disk fails: {kind}")

    def _damage(self) -> None:
        if not self.disk.is_folder(DATA):
            return
        paths = [f"{DATA}/{name}" for name in self.disk.list(DATA) if name in _CHECKPOINTS]
        for name in self.disk.list(DATA):
            folder = f"{DATA}/{name}"
            if self.disk.is_folder(folder):
                paths += [f"{folder}/{each}" for each in self.disk.list(folder) if each.endswith(_DAMAGED)]
        for path in self.random.sample(paths, min(len(paths), self.random.randrange(1, 4))):
            kind = self.random.choice(["gone", "short", "zeros", "noise"])
            self._note(f"{path} is damaged: {kind}")
            self.damaged.add(path.rpartition(".")[2])
            self._had_bad_snapshots |= path.endswith(".snapshot")
            data = self.disk.read(path)
            if kind == "gone":
                self.disk.remove(path)
            elif kind == "short":
                self.disk.replace(path, data[: max(0, len(data) - self.random.randrange(1, 8))])
            elif kind == "zeros":
                self.disk.replace(path, bytes(len(data)))
            else:
                self.disk.replace(path, self.random.randbytes(len(data)))

    # Checks

    def _check_all(self, broker: Broker) -> None:
        self._check_metadata(broker.image)
        for model in self._partitions():
            partition = broker.replicas.find(model.topic.name, model.index)
            log = partition.log
            model.settle_end(log.log_end_offset, power_failed=self.power_failed)
            check_partition(broker, model, self.random, broker.ports.clock.wall_ms(), restarted=True)
            model.settle_unknown()
            if self.power_failed or "snapshot" in self.damaged:
                for producer in model.producers:
                    last = producer.batches[-1] if producer.batches else None
                    producer.is_sure = last is not None and last.base_offset >= log.segments[0].base_offset
        self.power_failed = False
        self.damaged.clear()

    def _partitions(self) -> list[PartitionModel]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def _check_metadata(self, image: MetadataImage) -> None:
        """Each name is in the state that was confirmed last, or in one that was asked for since."""
        for name in {*self.topics, *image.topics, *self.alternatives}:
            topic = self.topics.get(name)
            found = image.topics.get(name)
            known = TopicState(topic, len(topic.partitions) if topic else 0, topic.configs if topic else {})
            configs = dict(image.configs.get((_TOPIC, name), {}))
            state = next(
                (
                    each
                    for each in [known, *self.alternatives.get(name, [])]
                    if (each.topic is None) == (found is None)
                    and (
                        found is None
                        or (
                            (each.count, each.configs) == (len(found.partitions), configs)
                            and each.topic.topic_id in (None, found.id)
                        )
                    )
                ),
                None,
            )
            demand(state is not None, "acked metadata is there", name=name, found=found, configs=configs, known=known)
            if state.topic is None:
                self.topics.pop(name, None)
                demand(not configs, "the settings of a deleted topic are gone", name=name, configs=configs)
            else:
                self.topics[name] = state.topic
                state.topic.topic_id = found.id
                state.topic.configs = state.configs
                state.topic.grow(state.count)
        self.alternatives.clear()

    # What is heard of errors

    def _on_error(self, _name: str, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        is_disk = isinstance(error, OSError | StorageError | KafkaError | None)
        # What was confirmed and not synced goes with the power; the broker says so.
        is_power = self.power_failed and record.getMessage().startswith("records are lost")
        if not is_power and not (self.node.is_sabotaged and is_disk):
            self._errors.append(f"{record.getMessage()} {getattr(record, 'facts', {})} {error!r}")

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, DeadError | ViolationError):
            return
        if not (self.node.is_sabotaged and isinstance(error, OSError)):
            self._errors.append(f"{context['message']} {error!r}")
