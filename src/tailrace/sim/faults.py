"""What goes wrong in a run: processes, hosts, disks and links, at moments that chance picks, several at a time.

Nothing is done that the promises do not cover: a host loses power or its disk, or has one that fails, only while every
partition has another live in-sync replica and nobody else still recovers from such a loss, since what is acknowledged
need not be synced; all at once only in runs in which it is. Processes may die all at once in any run. Damage of what
was synced is another's work (`damage`), under the same rule.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tailrace.sim.apart.apart import Apart
from tailrace.sim.apart.deaths import Deaths
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.cluster import FOLDERS, Node, SimCluster, World
from tailrace.sim.machines import machine_number
from tailrace.sim.network import SimNetwork

_PAUSE_SECONDS_MAX = 2.5
_FAULT_SECONDS_MAX = 5.0
# Others have elected a controller by then, and it has been one for longer than an old one may not know of it.
_LONG_PAUSE_SECONDS = 7.0
# A follower asks at least twice as often.
_ASKED_SECONDS = 1.0
_CUT_SECONDS_MIN = 0.3
_SLOW_TURN_SECONDS = 0.002, 0.1
_DECISION_SECONDS_MAX = 0.02
_LOOK_SECONDS = 0.1

# Each as often as it stands here.
ALL_KINDS = (
    *("kill", "kill", "kill leader", "kill leader", "kill all", "restart", "restart", "pause", "pause"),
    *("power", "power", "empty disk", "die writing", "die writing", "slow disk", "full disk", "bad disk"),
    *("isolate", "isolate", "isolate", "cut", "cut", "slow links", "reset", "reset", "reset"),
    *("slow node", "slow node", "pause controller"),
)
PROCESS_AND_LINK_KINDS = (
    *("kill", "kill", "kill leader", "kill leader", "kill all", "restart", "restart", "pause", "die writing"),
    *("slow disk", "isolate", "isolate", "cut", "slow links", "reset", "reset", "slow node", "pause controller"),
)
# Where machines have several brokers.
MACHINE_KINDS = ("power of machine",) * 6 + ("kill machine",) * 4

Fault = Callable[[], Awaitable[None]]


async def _never() -> Sequence[int]:
    await asyncio.Event().wait()
    return ()


class Faults:
    def __init__(self, world: World, cluster: SimCluster, replicas: ReplicaChecks) -> None:
        self._world = world
        self._cluster = cluster
        self._replicas = replicas
        self._random = world.random.fork()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_each_machine = 1  # How many brokers share one.
        self.wipes_left = 1  # A voter whose disk is replaced is none any more, unless voters join by themselves.
        # Waits until something is decided that several brokers have to carry out, and gives their ids.
        self.wait_decision: Callable[[], Awaitable[Sequence[int]]] = _never
        self._losers: dict[str, Node] = {}  # Who has lost power or its disk, or has a bad or a damaged one.
        self._is_held = False
        self._stopped: str | None = None  # The controller that is to be stopped when another one says something to it.
        self._deaths = Deaths(cluster, self._random)
        self._watch_arrivals(world.network)
        self._kinds: dict[str, Fault] = {
            "kill": self._kill_one,
            "kill leader": self._kill_leader,
            "kill all": self._kill_all,
            "kill between": self._kill_between,
            "restart": self._restart_one,
            "power": self._lose_power,
            "power of all": self._lose_all_power,
            "power of machine": self._lose_machine,
            "kill machine": self._kill_machine,
            "empty disk": self._empty_disk,
            "die writing": self._die_writing,
            "pause": self._pause,
            "pause controller": self._pause_controller,
            "slow node": self._slow_node,
            "isolate": self._isolate,
            "cut": self._cut_some_links,
            "slow links": self._slow_links,
            "reset": self._reset_connections,
            "slow disk": self._slow_disk,
            "full disk": self._fill_disk,
            "bad disk": self._fail_disk,
            **Apart(cluster, replicas, self._random, self._cut_for).kinds,
        }

    def _watch_arrivals(self, network: SimNetwork) -> None:
        told = network.on_arrival

        def tell(source: str, target: str, size: int) -> None:
            told(source, target, size)
            self._on_arrival(source, target)

        network.on_arrival = tell

    async def run(self, seconds: float, kinds: Sequence[str]) -> None:
        """Picks among `kinds`, where the same one may stand several times."""
        end = self._world.loop.now + seconds
        while True:
            await asyncio.sleep(self._random.between(0, _PAUSE_SECONDS_MAX))
            if self._world.loop.now >= end:
                return
            if self._is_held:
                continue
            self._tasks.append(asyncio.ensure_future(self._kinds[self._random.choice(kinds)]()))

    async def heal(self) -> None:
        """Everything works again from here on, and nothing else goes wrong."""
        for task in self._tasks:
            task.cancel()
        self._stopped = None
        self._world.trace.note("world", "heals")
        self._world.network.heal()
        for node in self._cluster.nodes:
            node.disk.heal()
            node.background.extra_ms = 0.0
            node.resume()
            if node.is_up and (node.is_sabotaged or node.is_stopping):
                # A disk that has failed is not trusted again before a restart.
                node.kill()
        self._cluster.start_all()

    @asynccontextmanager
    async def held(self, timeout_seconds: float) -> AsyncIterator[bool]:
        """Nothing else goes wrong meanwhile. Gives whether everything that did is over, and everybody is back."""
        self._is_held = True
        try:
            yield await self.wait_whole(timeout_seconds)
        finally:
            self._is_held = False

    async def wait_whole(self, timeout_seconds: float) -> bool:
        """Whether all faults that were begun are over in time, and everybody is back."""
        deadline = self._world.loop.now + timeout_seconds
        while not (is_whole := self._is_whole()):
            if self._world.loop.now >= deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return is_whole

    def _is_whole(self) -> bool:
        return all(task.done() for task in self._tasks) and all(self.is_back(node) for node in self._cluster.nodes)

    def note_loss(self, node: Node) -> None:
        self._losers[node.name] = node

    def has_losses(self) -> bool:
        """Whether somebody has lost something that is not known to be there again."""
        self._forget_the_recovered()
        return bool(self._losers)

    def check(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    # ---- processes

    async def _kill_one(self) -> None:
        await self._kill([self._random.choice(self._cluster.nodes)])

    async def _kill_leader(self) -> None:
        """The leader of a partition, or of the quorum."""
        image = self._replicas.image
        leaders: list[int] = [
            state.leader
            for topic in (image.topics.values() if image is not None else ())
            for state in topic.partitions.values()
        ]
        leaders += [
            node.node_id for node in self._cluster.nodes if node.broker is not None and is_active_controller(node)
        ]
        if leaders:
            leader = self._random.choice(leaders)
            await self._kill([node for node in self._cluster.nodes if node.node_id == leader])

    async def _kill_all(self) -> None:
        await self._kill(self._random.shuffled(self._cluster.nodes))

    async def _kill_machine(self) -> None:
        await self._kill(self._some_machine())

    async def _kill_between(self) -> None:
        """Between the decision of a transaction and its last marker: one of those who have to do with it, or it is
        paused."""
        brokers = await self.wait_decision()
        await self._sleep(0.0, _DECISION_SECONDS_MAX)
        chosen = self._random.choice(brokers)
        nodes = [node for node in self._cluster.nodes if node.node_id == chosen]
        if self._random.random() < 0.6:
            await self._kill(nodes)
        else:
            await self._pause_one(nodes[0])

    async def _kill(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.kill()
            self._deaths.note(node)
        for node in nodes:
            await self._sleep(0.0, _FAULT_SECONDS_MAX / len(nodes))
            self._start(node)

    async def _restart_one(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        await node.stop()
        await self._sleep(0.0, 1.0)
        self._start(node)

    async def _pause(self) -> None:
        await self._pause_one(self._random.choice(self._cluster.nodes))

    async def _pause_one(self, node: Node) -> None:
        """Every other time in the middle of its work: with what it has read and not done."""
        node.pause(at_work=self._world.loop.turns % 2 == 0)
        await self._sleep(0.1, _FAULT_SECONDS_MAX)
        node.resume()

    async def _pause_controller(self) -> None:
        """The active one, when it has something in its hands that another controller sent, and for so long that it is
        replaced. It is cut off from the other nodes until after it goes on: only its own judgement tells it."""
        node = next((each for each in self._cluster.nodes if is_active_controller(each)), None)
        if node is None or self._stopped is not None:
            return
        self._stopped = node.name
        await asyncio.sleep(_ASKED_SECONDS)
        others = [other.name for other in self._cluster.nodes if other is not node]
        pairs = [(node.name, other) for other in others] + [(other, node.name) for other in others]
        cutting = asyncio.ensure_future(self._cut(pairs, _LONG_PAUSE_SECONDS + _CUT_SECONDS_MIN))
        self._tasks.append(cutting)
        await asyncio.sleep(_LONG_PAUSE_SECONDS)
        self._stopped = None
        node.resume()

    def _on_arrival(self, source: str, target: str) -> None:
        if target == self._stopped and any(source == each.name for each in self._cluster.controllers):
            node = next(each for each in self._cluster.nodes if each.name == target)
            if node.process is not None and not node.process.is_paused:
                node.pause(at_work=True)

    async def _slow_node(self) -> None:
        """Without enough of a processor: it does all it has to, late."""
        node = self._random.choice(self._cluster.nodes)
        node.slow_down(self._random.between(*_SLOW_TURN_SECONDS))
        await self._sleep(0.5, _FAULT_SECONDS_MAX)
        node.resume()

    # ---- hosts and disks

    async def _lose_power(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        if self._may_lose(node):
            self._losers[node.name] = node
            node.lose_power()
            await self._sleep(0.2, _FAULT_SECONDS_MAX)
            self._start(node)

    async def _lose_machine(self) -> None:
        """All of its brokers at once."""
        nodes = self._some_machine()
        if self._may_lose(*nodes):
            for node in nodes:
                self._losers[node.name] = node
                node.lose_power()
            for node in nodes:
                await self._sleep(0.2, _FAULT_SECONDS_MAX / len(nodes))
                self._start(node)

    def _some_machine(self) -> list[Node]:
        machines = [machine_number(node, self.on_each_machine) for node in self._cluster.brokers]
        chosen = self._random.choice(machines)
        return [node for node, each in zip(self._cluster.brokers, machines, strict=True) if each == chosen]

    async def _lose_all_power(self) -> None:
        """For runs in which everything is synced before it is acknowledged."""
        nodes = self._random.shuffled(self._cluster.nodes)
        self._forget_the_recovered()
        if self._losers:
            return
        for node in nodes:
            self._losers[node.name] = node
            node.lose_power()
        for node in nodes:
            await self._sleep(0.0, 1.0)
            self._start(node)

    async def _empty_disk(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        if self.wipes_left and self._may_lose(node):
            self.wipes_left -= 1
            self._losers[node.name] = node
            node.lose_power()
            self._cluster.wipe(node)
            await self._sleep(0.2, _FAULT_SECONDS_MAX)
            self._start(node)

    async def _die_writing(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        if node.is_up:
            node.die_in_disk_operation()
            await self._sleep(1.0, _FAULT_SECONDS_MAX)
            self._start(node)

    async def _slow_disk(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        self._note(f"the disk of {node.name} is slow")
        node.background.extra_ms = self._random.between(20, 500)
        await self._sleep(0.5, _FAULT_SECONDS_MAX)
        node.background.extra_ms = 0.0

    async def _fill_disk(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        if not self._may_lose(node):
            return
        self._note(f"the disk of {node.name} is full")
        self._losers[node.name] = node
        node.is_sabotaged = True
        node.disk.fill(left_bytes=self._random.randrange(3000))
        await self._mend(node)

    async def _fail_disk(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        if not self._may_lose(node):
            return
        operation = self._random.choice(("sync", "sync", "append", "rename", "read", "create"))
        pattern = self._random.choice(("*", "*.log", "*__cluster_metadata*", "*quorum-state*", f"{FOLDERS[1]}/*"))
        self._note(f"the disk of {node.name} fails: {operation} of {pattern}")
        self._losers[node.name] = node
        node.is_sabotaged = True
        node.disk.fail(operation, pattern, error=errno.EIO, count=self._random.choice((1, 3, 1 << 30)))
        await self._mend(node)

    async def _mend(self, node: Node) -> None:
        disk = node.disk
        await self._sleep(0.5, _FAULT_SECONDS_MAX)
        disk.heal()
        if disk is node.disk and node.is_up:
            await node.stop()
        self._start(node)

    def _may_lose(self, *nodes: Node) -> bool:
        """Whether all that is committed is in another live log, and nobody else has lost something and is not back yet:
        until then the controller may take that one for a replica that has everything."""
        image = self._replicas.image
        self._forget_the_recovered()
        are_up = all(node.is_up for node in nodes)
        if image is None or not are_up or any(each not in nodes for each in self._losers.values()):
            return False
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                others = [each for each in self._cluster.brokers if each not in nodes and each.node_id in state.isr]
                members = [self._replicas.member(each, (topic.name, index)) for each in others]
                if any(node.node_id in state.replicas for node in nodes) and not any(
                    member is not None and not member.log.is_offline for member in members
                ):
                    return False
        return True

    def _forget_the_recovered(self) -> None:
        self._losers = {name: each for name, each in self._losers.items() if not self.is_back(each)}

    def is_back(self, node: Node) -> bool:
        """Whether the controller counts it among the in-sync replicas of all its partitions in its present life. What
        was damaged has to be whole again, too."""
        image = self._replicas.image
        is_back = (
            image is not None
            and node.is_ready
            and not node.is_sabotaged
            and all(
                node.node_id in state.isr and self._replicas.member(node, (topic.name, index)) is not None
                for topic in image.topics.values()
                for index, state in topic.partitions.items()
                if node.node_id in state.replicas
            )
        )
        if is_back and node.is_damaged and self._replicas.find_missing(node) is None:
            node.is_damaged = False
            self._note(f"{node.name} has everything again")
        return is_back and not node.is_damaged

    def _start(self, node: Node) -> None:
        self._cluster.start(node)

    # ---- links

    async def _isolate(self) -> None:
        """One host from all other nodes, and perhaps from the clients."""
        node = self._random.choice(self._cluster.nodes)
        others = [other.name for other in self._cluster.nodes if other is not node]
        if self._random.random() < 0.3:
            others += [stream.host for stream in self._world.network.streams if stream.host not in others]
            others = [name for name in dict.fromkeys(others) if name != node.name]
        await self._cut([(node.name, other) for other in others] + [(other, node.name) for other in others])

    async def _cut_some_links(self) -> None:
        """In one direction or both: bridges and half-dead links come of it."""
        names = [node.name for node in self._cluster.nodes]
        pairs = [(source, target) for source in names for target in names if source != target]
        await self._cut(self._random.shuffled(pairs)[: 1 + self._random.randrange(1 + len(pairs) // 2)])

    async def _cut(self, pairs: list[tuple[str, str]], seconds_min: float = _CUT_SECONDS_MIN) -> None:
        await self._cut_for(pairs, self._random.between(seconds_min, max(seconds_min, _FAULT_SECONDS_MAX)))

    async def _cut_for(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        self._note("cuts " + " ".join(f"{source}>{target}" for source, target in pairs))
        for source, target in pairs:
            self._world.network.cut(source, target)
        await asyncio.sleep(seconds)
        self._note("mends " + " ".join(f"{source}>{target}" for source, target in pairs))
        for source, target in pairs:
            self._world.network.mend(source, target)

    async def _slow_links(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        latency_ms = self._random.between(20, 400)
        self._note(f"the links of {node.name} are slow: {latency_ms:.0f} ms")
        others = [other.name for other in self._cluster.nodes if other is not node]
        pairs = [(node.name, other) for other in others] + [(other, node.name) for other in others]
        for source, target in pairs:
            self._world.network.slow(source, target, latency_ms=latency_ms, bytes_per_ms=50)
        await self._sleep(0.5, _FAULT_SECONDS_MAX)
        for source, target in pairs:
            self._world.network.slow(source, target)

    async def _reset_connections(self) -> None:
        network = self._world.network
        for _ in range(1 + self._random.randrange(5)):
            streams = list(network.streams)
            if streams:
                network.reset(self._random.choice(streams))
            await self._sleep(0.0, 0.3)

    async def _sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.between(low, high))

    def _note(self, text: str) -> None:
        self._world.trace.note("world", text)


def is_active_controller(node: Node) -> bool:
    return node.broker is not None and node.is_ready and node.is_controller and node.broker.quorum.is_active
