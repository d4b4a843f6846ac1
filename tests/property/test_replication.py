"""Three replicas under random crashes, cuts, late metadata and changes of leader: what was confirmed is never lost.

The test is the controller: it elects from the in-sync set only, takes a dead incarnation out of it, and hands out
images that reach each node in order but as late as chance has it. Nodes are managers with the real handlers.
"""

import asyncio

import pytest

from tailrace.model.errors import KafkaError
from tailrace.model.ids import NodeId
from tests.unit.replica.cluster import Cluster, Node, simulate

STEPS = 120
LAG_MAX_MS = 400


class Chaos:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.confirmed: dict[
            int, bytes
        ] = {}  # By offset; what a producer was told or a leader's high watermark passed.
        self.watermarks: dict[tuple[int, int], int] = {}  # By leader epoch and node: never falls while it leads.
        self.lost: set[int] = set()  # Nodes whose disk lost what was not synced, and which have not come back yet.
        self.count = 0
        self.confirmed_count = 0

    def choose(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, nodes: list[Node]) -> Node:
        return nodes[self.random.randrange(len(nodes))]

    # ---- what happens

    async def run(self) -> None:
        self.cluster.start(min_insync_replicas="2" if self.choose(0.5) else "1")
        self.cluster.alter_seconds_max = 0.3 if self.choose(0.5) else 0.0
        self.cluster.set(leader=1)
        steps = [self.produce] * 8 + [self.crash, self.restart, self.isolate, self.heal, self.deafen, self.hear]
        steps += [self.elect, self.shrink, self.shrink, self.expire]
        for _ in range(STEPS):
            steps[self.random.randrange(len(steps))]()
            await asyncio.sleep(self.random.random() * (0.3 if self.choose(0.1) else 0.02))
            self.check()
        await self.end()

    def produce(self) -> None:
        for node in self.cluster.nodes.values():  # A deposed leader may still take records, and must not confirm them.
            if node.is_up and ("t", 0) in node.replicas.partitions and node.partition().is_leader:
                asyncio.get_running_loop().create_task(self.produce_one(node))

    async def produce_one(self, node: Node) -> None:
        self.count += 1
        value = b"%d" % self.count
        partition = node.partition()
        try:
            done = node.append(value)
            offset = partition.log.log_end_offset - 1
            await done
        except KafkaError:
            return
        self.confirmed_count += 1
        self.note(offset, value)

    def note(self, offset: int, value: bytes) -> None:
        assert self.confirmed.setdefault(offset, value) == value, f"two records were confirmed at offset {offset}"

    def crash(self) -> None:
        up = [node for node in self.cluster.nodes.values() if node.is_up]
        if len(up) > 1:
            node = self.pick(up)
            # The last in-sync replica may not lose what only it has: no election could be clean after that.
            others = [each for each in self.cluster.partitions[0].isr if each != node.id and each not in self.lost]
            loses_power = bool(others) and self.choose(0.3)
            node.crash(power_loss=loses_power)
            if loses_power:
                self.lost.add(node.id)

    def expire(self) -> None:
        """The controller notices who is gone, or cannot be reached."""
        state = self.cluster.partitions[0]
        gone = [
            node.id
            for node in self.cluster.nodes.values()
            if not node.is_up or (node.id, NodeId(0)) in self.cluster.cut
        ]
        isr = tuple(each for each in state.isr if each not in gone)
        isr = isr or tuple(each for each in state.isr if each not in self.lost)[:1]
        leader = None
        if state.leader in gone or state.leader < 0:
            alive = [each for each in isr if each not in gone]
            leader = alive[self.random.randrange(len(alive))] if alive else -1
            leader = None if leader == state.leader else leader
        if isr != state.isr or leader is not None:
            self.cluster.set(leader=leader, isr=isr)

    def restart(self) -> None:
        down = [node for node in self.cluster.nodes.values() if not node.is_up]
        if not down:
            return
        node = self.pick(down)
        state = self.cluster.partitions[0]
        # A new incarnation leaves the in-sync set, unless it is the last that is known to have everything.
        isr = tuple(each for each in state.isr if each != node.id)
        if self.lost.issuperset(isr):
            isr = tuple(each for each in state.isr if each not in self.lost)
        self.lost.discard(node.id)
        self.cluster.deaf.discard(node.id)
        node.start()
        leader = None
        if state.leader == node.id or state.leader < 0:
            alive = [each for each in isr if self.cluster[each].is_up]
            leader = alive[0] if alive else -1
        self.cluster.set(leader=leader, isr=isr)

    def isolate(self) -> None:
        self.cluster.isolate(self.pick(list(self.cluster.nodes.values())).id)

    def heal(self) -> None:
        self.cluster.heal()

    def deafen(self) -> None:
        self.cluster.deaf.add(self.pick(list(self.cluster.nodes.values())).id)

    def hear(self) -> None:
        self.cluster.deaf.clear()
        self.cluster.publish()

    def elect(self) -> None:
        alive = [each for each in self.cluster.partitions[0].isr if self.cluster[each].is_up]
        if alive:
            self.cluster.set(leader=alive[self.random.randrange(len(alive))])

    def shrink(self) -> None:
        for node in self.cluster.nodes.values():
            if node.is_up:
                for partition in node.replicas.partitions.values():
                    partition.shrink_isr()

    # ---- what must hold

    def check(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.is_up or ("t", 0) not in node.replicas.partitions:
                continue
            partition = node.partition()
            log = partition.log
            assert log.log_start_offset <= partition.high_watermark <= log.log_end_offset
            if partition.is_leader:
                key = partition.leader_epoch, node.id
                assert partition.high_watermark >= self.watermarks.get(key, 0), "a high watermark fell"
                self.watermarks[key] = partition.high_watermark
            values = node.values()
            for offset, value in enumerate(values[: partition.high_watermark]):
                self.note(offset, value)

    async def end(self) -> None:
        cluster = self.cluster
        cluster.heal()
        for _ in range(3):
            self.restart()
        self.hear()
        for _ in range(4):
            self.expire()
            await cluster.settle(2)
            self.shrink()
        state = cluster.partitions[0]
        assert set(state.isr) == {1, 2, 3}, f"only {state.isr} came back"
        await cluster[state.leader].append(b"last")
        await cluster.settle(1)
        logs = [node.values() for node in cluster.nodes.values()]
        assert logs[0] == logs[1] == logs[2]
        for offset, value in self.confirmed.items():
            assert logs[0][offset] == value, f"the record confirmed at offset {offset} is gone"


@pytest.mark.parametrize("seed", range(40))
def test_nothing_confirmed_is_lost(seed):
    async def run(cluster: Cluster):
        chaos = Chaos(cluster)
        await chaos.run()
        return chaos.confirmed_count

    simulate(run, seed=seed, replica_lag_time_max_ms=LAG_MAX_MS)
