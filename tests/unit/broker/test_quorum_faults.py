"""Metadata under random kills, power losses, cuts and full disks: what was answered stays, and all nodes agree."""

import asyncio
import errno
from contextlib import suppress

import pytest

from tailrace.broker.quorum.quorum import Quorum
from tailrace.controller.image import MetadataImage
from tailrace.model.errors import KafkaError, StorageError
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tests.unit.broker.quorum_cluster import Cluster, Node, run, wait_until
from tests.unit.broker.test_quorum_cluster import setting, setting_of

ROUNDS = 15


class Story:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = SimRandom(seed)
        self.answered = 0
        # What each offset amounted to on the node that told of it first.
        self.images: dict[int, MetadataImage] = {}
        self.bugs: list[Exception] = []
        for quorum in cluster.running:
            quorum.on_bug = self.bugs.append

    async def write(self) -> None:
        """One change after the other: numbers that grow, so that a lost one shows as a step back."""
        number = 0
        while True:
            number += 1
            try:
                await self.cluster.submit(setting(number))
                self.answered = number
            except (KafkaError, TimeoutError):
                continue
            finally:
                await asyncio.sleep(0.05)

    async def press(self) -> None:
        """Changes by whoever thinks it is active, cut off or not: what only it has must be gone when it is not."""
        number = 0
        requests: list[asyncio.Task[None]] = []
        while True:
            await asyncio.sleep(0.1)
            requests = [task for task in requests if not task.done()]
            for node in self.cluster.nodes.values():
                if node.quorum is not None and node.quorum.is_active:
                    number += 1
                    requests.append(asyncio.create_task(self._press(node, node.quorum, number)))

    async def _press(self, node: Node, quorum: Quorum, number: int) -> None:
        with suppress(KafkaError):
            await node.run(quorum.submit_local(setting(number, name="log.retention.bytes")))

    async def play(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(self.random.random())
            await self.disturb()
            self.check()
        self.cluster.cut_off = set()
        for node in self.cluster.nodes.values():
            node.disk.heal()
            if node.quorum is None or node.quorum.failure is not None:
                await self.restart(node)

    async def disturb(self) -> None:
        node = self.cluster.nodes[1 + self.random.randrange(len(self.cluster.nodes))]
        chance = self.random.random()
        if chance < 0.35:
            await self.restart(node, is_power_loss=chance < 0.15)
        elif chance < 0.6:
            self.cluster.cut_off = {node.node_id}
        elif chance < 0.75:
            self.cluster.cut_off = set()
        elif chance < 0.85:
            node.disk.fail("append", "*.log", error=errno.ENOSPC)
        elif chance < 0.9:
            node.disk.fail("sync", "*")
        else:
            for each in self.cluster.nodes.values():
                each.disk.heal()
                if each.quorum is not None and each.quorum.failure is not None:
                    await self.restart(each)

    async def restart(self, node: Node, *, is_power_loss: bool = False) -> None:
        if node.process is not None:
            node.kill()
        node.disk.heal()
        if is_power_loss:
            node.disk.power_loss(self.random)
        quorum = await node.start()
        quorum.on_bug = self.bugs.append

    def check(self) -> None:
        assert not [bug for bug in self.bugs if not isinstance(bug, StorageError)]
        for node in self.cluster.nodes.values():
            for image in node.published:
                known = self.images.setdefault(image.next_offset, image)
                assert known is image or known == image, f"two histories up to offset {image.next_offset}"
            node.published.clear()


@pytest.mark.parametrize("seed", range(4))
def test_random_faults(seed: int) -> None:
    play_seed(seed)


def play_seed(seed: int) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(
            loop,
            voters=3 + 2 * (seed % 2),
            observers=1,
            metadata_log_max_record_bytes_between_snapshots=1000 + 1000 * (seed % 3),
            metadata_max_retention_bytes=0,
        )
        await cluster.start()
        told = Story(cluster, seed)
        writing = asyncio.ensure_future(told.write())
        pressing = asyncio.ensure_future(told.press())
        await told.play()
        await asyncio.sleep(5)
        before = told.answered
        await asyncio.sleep(2)
        assert told.answered > before, "the quorum does not recover"
        for task in (writing, pressing):
            task.cancel()
            await asyncio.wait((task,))
        image = await cluster.wait_equal()
        told.check()
        assert int(setting_of(image) or 0) >= told.answered

    run(story, seed=seed)


@pytest.mark.parametrize("after_seconds", [0.3, 0.6, 0.67, 0.73])
def test_a_first_controller_that_is_held_up_before_its_first_records_writes_them_later(after_seconds: float) -> None:
    """A machine that stops as a whole keeps its leader, which may not write at first. Nobody else brings these."""

    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        cluster.delay_seconds = 0.2
        await cluster.start()
        await wait_until(lambda: any(quorum.driver.is_leader for quorum in cluster.running), step_seconds=0.001)
        await asyncio.sleep(after_seconds)
        assert not any(quorum.is_active for quorum in cluster.running)
        processes = [node.process for node in cluster.nodes.values() if node.process is not None]
        for process in processes:
            process.pause()
        await asyncio.sleep(3.0)
        for process in processes:
            process.resume()
        for number in range(5):
            await cluster.submit(setting(number + 1))
        assert setting_of(await cluster.wait_equal()) == "5"
        assert all(quorum.failure is None for quorum in cluster.running)

    run(story)
