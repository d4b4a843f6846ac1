"""Life after life of one broker on one disk, all of it decided by a seed.

A life is a start, a check of everything against the model, some work, and an end: a clean stop, the death of the
process at a moment or in the middle of an operation of the disk, or a power loss. Between two lives files that can
be rebuilt may be damaged.
"""

import asyncio
import errno
import logging
from itertools import count
from random import Random
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.controller.image import MetadataImage
from tailrace.model.errors import KafkaError, StorageError
from tailrace.sim.clock import SimClock
from tests.property.faults.checks import check_files, check_partition
from tests.property.faults.model import PartitionModel, TopicModel, TopicState, Violation, demand
from tests.property.faults.workload import Workload
from tests.property.faults.world import DATA, DeadError, FaultDisk, VirtualLoop, make_broker

_TOPIC = 2
_DAMAGED = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")


class Scenario:
    def __init__(self, seed: int, *, lives: int = 6, steps: int = 60) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = SimClock()
        self.disk = FaultDisk(self.clock)
        self.topics: dict[str, TopicModel] = {}
        self.alternatives: dict[str, list[TopicState]] = {}
        self.lives = lives
        self.steps = steps
        self.life = 0
        self.power_failed = False  # since everything was last checked
        self.damaged: set[str] = set()  # since then: kinds of files
        self.story: list[str] = []
        self._numbers = count(1)
        self._errors: list[str] = []
        self._is_faulty = False
        self._had_bad_snapshots = False  # one that was not needed stays as it is

    def run(self) -> None:
        with _Listening(self._on_error):
            while self.life < self.lives:
                self._live(is_last=False)
                self.life += 1
            self._live(is_last=True)

    def _live(self, *, is_last: bool) -> None:
        end = "stop" if is_last else self.random.choice(["stop", "kill", "kill", "die", "die", "die at start"])
        power_fails = not is_last and self.random.random() < 0.4
        self.story.append(f"{self.life}: {end}{' and power loss' if power_fails else ''}")
        self._errors.clear()
        self._is_faulty = False
        if end == "die at start":
            self.disk.operations_left = self.random.randrange(60)
        stopped = False
        try:
            with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner:
                runner.get_loop().set_exception_handler(self._on_loop_error)
                stopped = runner.run(self._live_or_die(end))
        except DeadError:
            self.story.append(f"   died at {self.disk.last_operation}")
        self.disk.is_dead = self.disk.is_dead or not stopped
        demand(not self._errors, "nothing fails that should not", errors=self._errors)
        if stopped and not self._is_faulty:
            check_files(self.disk, with_snapshots=not self._had_bad_snapshots)
            for partition in self._partitions():
                partition.durable_end = max(partition.durable_end, partition.acked_end)
        self.power_failed |= power_fails
        self._had_bad_snapshots |= power_fails
        self.disk.revive(self.random, power_fails=power_fails)
        if self.random.random() < 0.3:
            self._damage()

    async def _live_or_die(self, end: str) -> bool:
        """Whoever waits for an answer when the process dies is not waited for."""
        death = asyncio.Event()
        self.disk.on_death = death.set
        life = asyncio.create_task(self._spend_life(end))
        dying = asyncio.create_task(death.wait())
        await asyncio.wait({life, dying}, return_when=asyncio.FIRST_COMPLETED)
        if self.disk.is_dead:
            raise DeadError
        dying.cancel()
        return await life

    async def _spend_life(self, end: str) -> bool:
        """Whether it ended with a clean stop."""
        broker = make_broker(self.disk, self.clock, self.random, {})
        await broker.start()
        self.disk.operations_left = -1
        self._check_all(broker)
        workload = Workload(
            broker,
            self.clock,
            self.random,
            self.topics,
            self.alternatives,
            life=self.life,
            numbers=self._numbers,
        )
        if end == "die":
            self.disk.operations_left = self.random.randrange(300)
        clients = self.random.choice([1, 1, 2, 4])
        work = [workload.run(self.steps // clients) for _ in range(clients)]
        if self.random.random() < 0.4:
            work.append(self._sabotage(workload))
        await asyncio.gather(*work)
        self.disk.heal()
        if end == "die" and self.random.random() < 0.5:
            self.disk.operations_left = self.random.randrange(30)
        if end in ("stop", "die"):
            await broker.stop()
            return True
        return False

    # Faults

    async def _sabotage(self, workload: Workload) -> None:
        for _ in range(self.random.randrange(1, 4)):
            await asyncio.sleep(self.random.random() * 4)
            self._is_faulty = workload.is_faulty = True
            self._break_disk()
            await asyncio.sleep(self.random.random() * 3)
            self.disk.heal()

    def _break_disk(self) -> None:
        kind = self.random.choice(["full", "full", "read-only", "EIO", "EIO", "EIO", "EIO"])
        if kind == "full":
            self.disk.capacity_bytes = 1 << 40
            used_bytes = (1 << 40) - self.disk.free_bytes(DATA)
            self.disk.capacity_bytes = used_bytes + self.random.randrange(3000)
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
        self.story.append(f"   {kind} at {self.clock.monotonic_ms():.0f}")

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
            self.story.append(f"   {path} is damaged: {kind}")
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
            check_partition(broker, model, self.random, self.clock.wall_ms(), restarted=True)
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

    def _on_error(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        is_disk = isinstance(error, OSError | StorageError | KafkaError | DeadError | None)
        if not (self._is_faulty or self.disk.is_dead) or not is_disk:
            facts = getattr(record, "facts", {})
            self._errors.append(f"{record.getMessage()} {facts} {error!r}")

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, DeadError) or self.disk.is_dead or isinstance(error, Violation):
            return
        if not (self._is_faulty and isinstance(error, OSError)):
            self._errors.append(f"{context['message']} {error!r}")


class _Listening(logging.Handler):
    """Hears what the broker calls an error."""

    def __init__(self, tell: Any) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell
        self._logger = logging.getLogger("tailrace")

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record)

    def __enter__(self) -> None:
        self._before = self._logger.level, self._logger.propagate
        self._logger.setLevel(logging.ERROR)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._before
