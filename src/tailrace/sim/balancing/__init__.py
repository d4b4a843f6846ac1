"""A balancer in a run: it works while brokers and controllers fail, is killed anywhere, and comes again.

All partitions begin on two brokers. What is watched: a reassignment that ends leaves at least min.insync.replicas in
sync. At the end, once all is healed, one run without faults brings the
cluster into balance, and leaves no throttle and no move behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tailrace.balance.plan.picture import Goals, Wish
from tailrace.balance.run.look import Limits
from tailrace.balance.run.runner import BalanceError, Pace, Runner
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.controller.effective import topic_config
from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.controller.partitions.throttles import RATES, mark_of
from tailrace.model.errors import KafkaError
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.workload import Clients, partitions_of
from tailrace.sim.cluster import Node, SimCluster, World
from tailrace.sim.loop import Process
from tailrace.sim.random import SimRandom

TOPIC = "skewed"
_PARTITIONS = 9
_LIFE_SECONDS = (0.1, 4.0)
_PUT_BACK = 4
_LAST_RUN_SECONDS = 120.0
_PACE = Pace(at_once=3, rate=200_000, rate_min=50_000, patience_ms=4000, poll_ms=200, wait_ms=60_000)
_GOALS = Goals()


class Balancing:
    """`start` it when the cluster is ready."""

    def __init__(self, world: World, cluster: SimCluster, clients: Clients, random: SimRandom) -> None:
        self._world = world
        self._cluster = cluster
        self._clients = clients
        self._random = random
        self._image: MetadataImage | None = None
        self._killing: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._is_stopping = False
        self._lives = self._finished = self._moves = 0

    async def start(self) -> None:
        process, cluster = self._clients.connect("balance-admin")
        await process.spawn(self._create(cluster), name="balance-admin")
        self._clients.start_producer(partitions_of(TOPIC, _PARTITIONS), pause_ms=20)
        self._killing = asyncio.ensure_future(self._live_and_die())

    async def _create(self, cluster: Cluster) -> None:
        first, second = (node.node_id for node in self._cluster.brokers[:2])
        assignments = {index: [first, second] for index in range(_PARTITIONS)}
        await Admin(cluster).create_topic(TOPIC, assignments=assignments)
        cluster.close()

    async def _live_and_die(self) -> None:
        """One balancer after the other. Each is killed between any two of its steps, or comes to its end."""
        while not self._is_stopping:
            self._lives += 1
            process, cluster = self._clients.connect(f"balancer-{self._lives}")
            running = process.spawn(self._run(cluster), name=f"balancer-{self._lives}")
            await asyncio.wait({running}, timeout=self._random.between(*_LIFE_SECONDS))
            if not running.done():
                self._world.trace.note(f"balancer-{self._lives}", "is killed")
            else:
                running.result()
                await self._put_back()
            process.kill()
            self._world.network.end_process(process)
            await asyncio.sleep(self._random.between(0, 1))

    async def _put_back(self) -> None:
        """Somebody undoes a part of it, so that there is work again."""
        process, cluster = self._clients.connect("balance-admin")
        first, second = (node.node_id for node in self._cluster.brokers[:2])
        partitions = self._random.shuffled(partitions_of(TOPIC, _PARTITIONS))[:_PUT_BACK]
        moving = process.spawn(Admin(cluster).begin_moves({each: [first, second] for each in partitions}), name="undo")
        await asyncio.wait({moving}, timeout=5)
        if moving.done() and not isinstance(moving.exception(), KafkaError | None):
            moving.result()
        cluster.close()

    async def _run(self, cluster: Cluster) -> None:
        try:
            outcome = await self._runner(cluster).run(Wish())
        except (KafkaError, BalanceError) as error:
            self._world.trace.note("balancer", f"gives up: {error}")
            return
        self._finished += 1
        self._moves += outcome.moved

    def _runner(self, cluster: Cluster) -> Runner:
        tell = lambda line: self._world.trace.note("balancer", line)  # noqa: E731
        return Runner(Admin(cluster), goals=_GOALS, pace=_PACE, limits=Limits(), tell=tell)

    # ---- what is looked at

    def look(self, node: Node) -> None:
        image = getattr(getattr(node.broker, "quorum", None), "image", None)
        if image is None or (self._image is not None and image.next_offset <= self._image.next_offset):
            return
        old, self._image = self._image, image
        before = None if old is None else old.topics.get(TOPIC)
        after = image.topics.get(TOPIC)
        if before is None or after is None or before is after or not node.broker:
            return
        enough = topic_config(node.config, image, TOPIC).min_insync_replicas
        for index, was in before.partitions.items():
            now = after.partitions[index]
            if {*was.replicas} != {*now.replicas} and not now.is_reassigning:
                kept = len(now.isr) >= min(enough, len(was.isr), len(now.replicas))
                demand(kept, "a move leaves enough replicas in sync", partition=index, isr=now.isr)

    def check(self) -> None:
        if self._killing is not None and self._killing.done():
            self._killing.result()

    async def stop(self) -> None:
        """Once all is healed."""
        self._is_stopping = True
        assert self._killing is not None, "it was started"
        await asyncio.wait({self._killing}, timeout=30)
        self.check()
        process, cluster = self._clients.connect("last-balancer")
        running = process.spawn(self._runner(cluster).run(Wish()), name="last-balancer")
        done, _ = await asyncio.wait({running}, timeout=_LAST_RUN_SECONDS)
        demand(bool(done), "a balancer ends once all is healed")
        outcome = running.result()
        demand(not outcome.given_up, "a balancer moves all once all is healed", given_up=outcome.given_up)
        cluster.close()
        await asyncio.sleep(1.0)
        self._check_end()

    def _check_end(self) -> None:
        image = max(
            (node.broker.image for node in self._cluster.nodes if node.broker is not None),
            key=lambda each: each.next_offset,
        )
        for name, topic in image.topics.items():
            demand(mark_of(image.config(ResourceType.TOPIC, name)) is None, "no throttle is left", topic=name)
            ongoing = [index for index, each in topic.partitions.items() if each.is_reassigning]
            demand(not ongoing, "no move is left", topic=name, partitions=ongoing)
        rates = {*RATES} & {*image.config(ResourceType.BROKER, "")}
        demand(not rates, "no throttled rate is left", rates=rates)
        counts: Counter[int] = Counter()
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                counts.update(partition.replicas)
        held = [counts[node.node_id] for node in self._cluster.brokers]
        demand(max(held) - min(held) <= max(2, 0.25 * max(held)), "brokers are even at the end", held=held)

    def story(self) -> str:
        return f", {self._lives} balancers of which {self._finished} came to their end, {self._moves} moves"
