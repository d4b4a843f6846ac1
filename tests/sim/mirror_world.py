"""Two clusters under faults, the one a mirror of the other, and what must hold of them.

Both have their own brokers, controllers and faults, and the links between them stall, are cut and break. The source is
written to by idempotent and transactional producers, and a group commits offsets there. In the end the mirror is failed
over amid all that, or promoted after the producers have stopped.

- Nothing is committed here that is not committed at the source, at the same offset with the same bytes, before the
  first epoch of the mirror's own.
- Then the first data come after a barrier, and no transaction is left open.
- A mirror takes nobody's records but the source's; from its opening on it takes everybody's, even of a producer whose
  id and epoch the source has used.
- Committed offsets of the group are never ahead of what is here, and never of the future at the source.
- After a promote all that the source has is here, and nobody writes there any more, whether its producers have stopped
  or not.
- After a reverse the old source has what is here, at the same offsets with the same bytes. What it had confirmed beyond
  is in the topic of what was cut, but for what was aborted.
- All that is checked of any cluster's replicas after every turn holds of both.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tailrace.client.admin import Admin
from tailrace.client.connection import Address
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.client.metadata import Cluster
from tailrace.client.mirrors.admin import MirrorAdmin
from tailrace.client.producer import ProducerOptions
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.controller.image import MirrorState
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.checks.history import ViolationError, demand
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.clients.workload import Clients, Ledger, partitions_of
from tailrace.sim.cluster import CLIENT_PORT, SimCluster, World
from tailrace.sim.faults import Faults
from tailrace.sim.loop import DeadError, Process, SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.plan import Plan, nodes_of
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.mirrors import ReverseMirrorRequest
from tailrace.wire.markers import is_barrier, read_marker
from tailrace.wire.records import HEADER_SIZE, BatchHeader, build_batch, read_header
from tests.sim.cutting_checks import CuttingChecks
from tests.sim.mirror_links import disturb_links
from tests.sim.mirror_plan import MirrorPlan

TOPIC, PARTITIONS = "orders", 2
GROUP = "readers"
_IN_TIME_SECONDS = 90.0
_TRANSACTION_SEQUENCE = 100_000  # Neither the next one of a mirrored producer nor one that it has used.


class MirrorWorld:
    def __init__(self, seed: int, plan: MirrorPlan | None = None) -> None:
        random = SimRandom(seed)
        self.plan = plan or MirrorPlan.of(random)
        self.loop = SimLoop(random.fork())
        self.trace = Trace(self.loop, None)
        self.world = World(self.loop, SimNetwork(self.loop, random.fork()), random, self.trace)
        self.random = random.fork()
        small = Plan()
        self.source = SimCluster(self.world, nodes_of(self.world, small, site="source-"))
        self.target = SimCluster(self.world, nodes_of(self.world, small, site="target-"))
        self.source_checks = CuttingChecks(self.source, self.trace)
        self.target_checks = ReplicaChecks(self.target, self.trace)
        self.faults = [
            Faults(self.world, self.source, self.source_checks),
            Faults(self.world, self.target, self.target_checks),
        ]
        self.ledger = Ledger()
        self.clients = Clients(self.world, self.source, self.ledger)
        self.visitors = Clients(self.world, self.target, Ledger())
        self.source_checks.on_committed = self._on_source
        self.source_checks.on_cut = self._on_cut
        self.target_checks.on_committed = self._on_target
        self.at_source: dict[tuple[tuple[str, int], int], bytes] = {}
        self.at_target: dict[tuple[tuple[str, int], int], bytes] = {}
        self.source_ends: dict[tuple[str, int], int] = {}
        self.target_ends: dict[tuple[str, int], int] = {}
        self.data_ends: dict[tuple[str, int], int] = {}  # At the source, without markers.
        self.uncertain: dict[
            tuple[tuple[str, int], int], list[bytes]
        ] = {}  # In open transactions, by partition and producer.
        self.cut: list[bytes] = []  # Records that must be saved,
        self.saved: set[bytes] = set()  # and those that are.
        self.aborted: set[bytes] = set()
        self.mirrored: dict[tuple[str, int], int] = {}  # Where mirrored batches end.
        self.barriers: dict[tuple[str, int], int] = {}
        self.producers: dict[tuple[str, int], BatchHeader] = {}  # The last of each partition's that was mirrored.
        self.committed: dict[TopicPartition, int] = {}  # By the group, at the source.
        self.refused_count = self.own_count = self.transactions = 0
        self._errors: list[str] = []
        self._nodes = {
            **{node.name: (node, self.source_checks) for node in self.source.nodes},
            **{node.name: (node, self.target_checks) for node in self.target.nodes},
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        return partitions_of(TOPIC, PARTITIONS)

    # ---- a run

    def run(self) -> str | None:
        """What was broken, if anything."""
        self.loop.after_turn = self._after_turn
        self.loop.set_exception_handler(self._on_loop_error)
        self.trace.on_error = lambda name, record: self._errors.append(
            f"{name}: {record.getMessage()} {getattr(record, 'facts', {})} {record.exc_info}"
        )
        with self.trace.listening():
            try:
                self.loop.run_until_complete(self._run())
            except ViolationError as error:
                return str(error)
            finally:
                self.loop.after_turn = lambda _process: None
                self.loop.close()
        return None

    async def _run(self) -> None:
        for cluster in (self.source, self.target):
            cluster.format()
            cluster.start_all()
        for cluster in (self.source, self.target):
            demand(await cluster.wait_ready(30), "a cluster starts in time")
        await self._as_visitor(self.clients, "maker", self._make_topic)
        for _ in range(2):
            self.clients.start_producer(self.partitions, pause_ms=60)
        self.clients.start("transactional", self._transact)
        self.clients.start("committer", self._commit_offsets)
        await self._as_visitor(self.visitors, "linker", self._make_link)
        self.visitors.start("intruder", self._intrude)
        kinds = (self.plan.faults, self.plan.target_faults or self.plan.faults)
        disturbing = [faults.run(self.plan.seconds, chosen) for faults, chosen in zip(self.faults, kinds, strict=True)]
        names = [[node.name for node in cluster.nodes] for cluster in (self.source, self.target)]
        disturbing.append(disturb_links(self.world, *names, seconds=self.plan.seconds))
        if self.plan.ends_by == "failover":
            disturbing.append(self._fail_over_amid())
        await asyncio.gather(*disturbing)
        for faults in self.faults:
            await faults.heal()
        if self.plan.ends_by == "promote":
            if self.plan.stops_producers:
                self.clients.stop()
                await self.clients.wait_stopped(_IN_TIME_SECONDS)
            await self._as_visitor(self.visitors, "promoter", self._promote)
        await self._wait_open()
        await self._as_visitor(self.visitors, "owner", self._write_own)
        if self.plan.reverses:
            self.clients.stop()
            await self.clients.wait_stopped(_IN_TIME_SECONDS)
            await self._reverse_amid()
        self.visitors.stop()
        self.clients.stop()
        await self.visitors.wait_stopped(_IN_TIME_SECONDS)
        await self.clients.wait_stopped(_IN_TIME_SECONDS)
        await asyncio.sleep(5)
        await self._as_visitor(self.visitors, "judge", self._judge_groups)
        self._judge_end()
        if self.plan.reverses:
            await self._judge_reversed()
        for cluster in (self.source, self.target):
            await cluster.stop_all()

    async def _as_visitor(self, clients: Clients, name: str, act) -> None:
        process, cluster = clients.connect(name)
        task = process.spawn(act(cluster), name=name)
        _done, pending = await asyncio.wait({task}, timeout=_IN_TIME_SECONDS)
        demand(not pending, "what is asked for is done in time", act=name)
        cluster.close()
        task.result()

    # ---- at the source

    async def _make_topic(self, cluster: Cluster) -> None:
        await Admin(cluster).create_topic(TOPIC, partition_count=PARTITIONS)

    async def _transact(self, cluster: Cluster) -> None:
        random = self.random.fork()
        producing = ProducerOptions(linger_ms=1, request_timeout_ms=2000, delivery_timeout_ms=8000)
        options = TransactionOptions("loader", timeout_ms=8000, retry_timeout_ms=20_000, producing=producing)
        while not self.clients.is_stopping:
            producer = TransactionalProducer(cluster, options)
            with suppress(KafkaError):
                await producer.init()
                while not self.clients.is_stopping:
                    producer.begin()
                    for index in range(1 + random.randrange(4)):
                        await producer.send(TOPIC, b"in a transaction", partition=index % PARTITIONS)
                        await asyncio.sleep(random.between(0, 0.3))
                    await (producer.commit() if random.random() < 0.6 else producer.abort())
                    self.transactions += 1
            with suppress(KafkaError):
                await producer.abort()
            producer.close()
            await asyncio.sleep(0.2)

    async def _commit_offsets(self, cluster: Cluster) -> None:
        """A group that reads as fast as there is something to read."""
        coordinator = Coordinator(cluster, GROUP)
        while not self.clients.is_stopping:
            ends = {each: self.source_ends.get(tuple(each), 0) for each in self.partitions}
            self.committed = {each: max(self.committed.get(each, 0), end) for each, end in ends.items()}
            with suppress(KafkaError):
                await GroupOffsets(coordinator, timeout_ms=3000).commit(ends)
            await asyncio.sleep(0.1)
        coordinator.close()

    # ---- at the mirror

    async def _make_link(self, cluster: Cluster) -> None:
        bootstrap = ",".join(str(Address(node.name, CLIENT_PORT)) for node in self.source.brokers)
        settings = {"bootstrap.servers": bootstrap, "topics": TOPIC, "sync.interval.ms": "300"}
        settings |= {
            "promote.quiet.ms": str(self.plan.quiet_ms),
            "max.bytes.per.second": str(self.plan.bytes_per_second),
        }
        await self._until_done(lambda: MirrorAdmin(cluster).create("dc1", self.source.cluster_id, settings))

    async def _until_done(self, ask) -> None:
        while True:
            try:
                await ask()
            except KafkaError:
                await asyncio.sleep(0.3)
            else:
                return

    async def _fail_over_amid(self) -> None:
        await asyncio.sleep(self.plan.seconds * self.random.between(0.6, 0.95))
        self.trace.note("world", "failover")

        async def act(cluster: Cluster) -> None:
            await self._until_done(lambda: MirrorAdmin(cluster).open_topics("dc1", "failover"))

        while TOPIC not in self._target_topics():
            await asyncio.sleep(0.1)
        await self._as_visitor(self.visitors, "operator", act)

    async def _promote(self, cluster: Cluster) -> None:
        await self._until_done(lambda: MirrorAdmin(cluster).open_topics("dc1", "promote"))

    async def _reverse_amid(self) -> None:
        self.trace.note("world", "reverse")
        disturbing = [
            faults.run(self.plan.seconds / 2, kinds)
            for faults, kinds in zip(
                self.faults, (self.plan.faults, self.plan.target_faults or self.plan.faults), strict=True
            )
        ]
        await asyncio.gather(self._as_visitor(self.clients, "reverser", self._reverse), *disturbing)
        for faults in self.faults:
            await faults.heal()

    async def _reverse(self, cluster: Cluster) -> None:
        """As the command does it: a link there, and topics that become mirrors by it."""
        admin = MirrorAdmin(cluster)
        bootstrap = ",".join(str(Address(node.name, CLIENT_PORT)) for node in self.target.brokers)
        settings = {"bootstrap.servers": bootstrap, "topics": TOPIC, "sync.interval.ms": "300"}
        await self._until_done(lambda: admin.create("back", self.target.cluster_id, settings))
        topic = self._target_topics()[TOPIC]
        asked = ReverseMirrorRequest.Topic(
            name=TOPIC,
            source_topic=TOPIC,
            source_topic_id=topic.id,
            leader_epochs=[each.leader_epoch for each in topic.partitions.values()],
        )
        await self._until_done(lambda: admin.reverse("back", [asked]))

    async def _judge_reversed(self) -> None:
        deadline = self.loop.now + _IN_TIME_SECONDS
        while self.source_ends != self.target_ends or self._source_mirror().state is not MirrorState.MIRRORING:
            demand(
                self.loop.now < deadline,
                "the old source follows in time",
                ends=(self.source_ends, self.target_ends),
                state=self._source_mirror(),
            )
            await asyncio.sleep(0.3)
        for (key, offset), batch in self.at_source.items():
            demand(
                self.at_target.get((key, offset)) == batch,
                "what the old source has is here, with the same bytes at the same offset",
                partition=key,
                offset=offset,
            )
        missing = [batch for batch in self.cut if batch not in self.saved | self.aborted]
        demand(not missing, "what was cut is saved", first=missing[:1], cut=len(self.cut), saved=len(self.saved))

    def _source_mirror(self):
        return self.source_checks.image.topics[TOPIC].mirror

    def _target_topics(self):
        image = self.target_checks.image
        return {} if image is None else image.topics

    def _opening_epoch(self) -> int | None:
        topic = self._target_topics().get(TOPIC)
        return (
            None if topic is None or topic.mirror is None or topic.mirror.is_read_only else topic.mirror.opening_epoch
        )

    async def _wait_open(self) -> None:
        deadline = self.loop.now + _IN_TIME_SECONDS
        while self._opening_epoch() is None:
            demand(self.loop.now < deadline, "a mirror is opened in time", ends_by=self.plan.ends_by)
            await asyncio.sleep(0.1)

    async def _intrude(self, cluster: Cluster) -> None:
        """Tries to write to the mirror as long as it is one."""
        while not self.visitors.is_stopping:
            was_open = self._opening_epoch() is not None
            code, _offset = await self._produce(cluster, 0, producer_id=-1, sequence=-1)
            if code is ErrorCode.NONE and not was_open:
                demand(self._opening_epoch() is not None, "a mirror takes records of its source alone")
            self.refused_count += code is ErrorCode.POLICY_VIOLATION
            await asyncio.sleep(0.3)

    async def _write_own(self, cluster: Cluster) -> None:
        """As a producer that has been given an id which the source has used."""
        for partition in self.partitions:
            known = self.producers.get(tuple(partition))
            if known is None:
                continue
            deadline = self.loop.now + 30
            while True:
                code, _offset = await self._produce(
                    cluster,
                    partition.partition,
                    producer_id=known.producer_id,
                    epoch=known.producer_epoch,
                    sequence=_TRANSACTION_SEQUENCE,
                )
                if code is ErrorCode.NONE:
                    self.own_count += 1
                    break
                demand(
                    code.retriable and code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.loop.now < deadline,
                    "a producer with an id of the source's writes after the opening",
                    code=code,
                    partition=partition,
                )
                await asyncio.sleep(0.2)

    async def _produce(
        self, cluster: Cluster, index: int, *, producer_id: int, sequence: int, epoch: int = -1
    ) -> tuple[ErrorCode, int]:
        where = TopicPartition(TOPIC, PartitionIndex(index))
        records = [(0, 1_767_225_600_000, None, b"own", ())]
        batch = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        data = ProduceRequest.PartitionProduceData(index=index, records=batch)
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        try:
            leader = await cluster.leader_of(where)
            connection = await cluster.connection_to(leader.leader_id)
            request = ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[topic])
            answer = await connection.call(request, ProduceResponse, version_max=12, timeout_ms=4000)
        except KafkaError as error:
            cluster.forget(TOPIC)
            return error.code if error.code.retriable else ErrorCode.NETWORK_EXCEPTION, -1
        result = answer.responses[0].partition_responses[0]
        code = ErrorCode(result.error_code)
        if code is not ErrorCode.NONE:
            cluster.forget(TOPIC)
        return code, result.base_offset

    # ---- what must hold

    def _on_source(self, key: tuple[str, int], header: BatchHeader, batch: bytes) -> None:
        if key[0] == TOPIC + ".cut":
            self.saved.add(batch[HEADER_SIZE:])
        if key[0] != TOPIC:
            return
        self.at_source[key, header.base_offset] = batch
        self.source_ends[key] = header.next_offset
        if self._source_mirror() is not None:
            return
        owner = key, header.producer_id
        if header.is_control:
            ended = self.uncertain.pop(owner, [])
            self.aborted.update(ended if not read_marker(header, batch).is_commit else ())
        else:
            self.data_ends[key] = header.next_offset
            demand(
                self._opening_epoch() is None or self.plan.ends_by == "failover",
                "after a promote nobody writes to the source",
                partition=key,
                offset=header.base_offset,
            )
        if header.is_transactional and not header.is_control:
            self.uncertain.setdefault(owner, []).append(batch[HEADER_SIZE:])

    def _on_cut(self, key: tuple[str, int], end_offset: int) -> None:
        gone = sorted(each for each in self.at_source if each[0] == key and each[1] >= end_offset)
        for each in gone:
            batch = self.at_source.pop(each)
            header = read_header(batch)
            # What the new source has given is there.
            if not header.is_control and self.at_target.get(each) != batch:
                self.cut.append(batch[HEADER_SIZE:])
        self.source_ends[key] = end_offset

    def _on_target(self, key: tuple[str, int], header: BatchHeader, batch: bytes) -> None:
        if key[0] != TOPIC:
            return
        self.at_target[key, header.base_offset] = batch
        self.target_ends[key] = header.next_offset
        opening = self._opening_epoch()
        if opening is None or header.leader_epoch < opening:
            demand(
                self.at_source.get((key, header.base_offset)) == batch,
                "what is mirrored is committed at the source, with the same bytes at the same offset",
                partition=key,
                offset=header.base_offset,
                epoch=header.leader_epoch,
                source_end=self.source_ends.get(key),
            )
            self.mirrored[key] = header.next_offset
            if header.producer_id >= 0:
                self.producers[key] = header
        elif is_barrier(header, batch):
            self.barriers.setdefault(key, header.base_offset)
        elif not header.is_control:
            demand(key in self.barriers, "nobody writes before the barrier", partition=key, offset=header.base_offset)

    async def _judge_groups(self, cluster: Cluster) -> None:
        coordinator = Coordinator(cluster, GROUP)
        found = await GroupOffsets(coordinator, timeout_ms=20_000).fetch()
        coordinator.close()
        for where, committed in found.items():
            limit = self.mirrored.get(tuple(where), 0)
            demand(
                committed.offset <= min(limit, self.committed[where]),
                "committed offsets are never ahead of what is mirrored",
                partition=where,
                committed=committed.offset,
                mirrored=limit,
            )
        if self.plan.ends_by == "promote":
            demand(found, "offsets of groups are here after a promote")

    def _judge_end(self) -> None:
        demand(self.mirrored, "something was mirrored")
        image = self.target_checks.image
        for key in [tuple(each) for each in self.partitions]:
            if self.plan.ends_by == "promote":
                demand(
                    self.mirrored.get(key, 0) >= self.data_ends.get(key, 0),
                    "after a promote all of the source is here",
                    partition=key,
                    here=self.mirrored.get(key),
                    source=self.data_ends.get(key),
                )
            demand(key in self.barriers, "each partition is opened", partition=key)
            leader = image.topics[TOPIC].partitions[key[1]].leader
            node = next(node for node in self.target.nodes if node.node_id == leader)
            partition = node.broker.replicas.partitions[key]
            demand(
                partition.last_stable_offset == partition.high_watermark,
                "no transaction of the source is left open",
                partition=key,
                stable=partition.last_stable_offset,
                high_watermark=partition.high_watermark,
            )

    def _after_turn(self, process: Process) -> None:
        found = self._nodes.get(process.name)
        if found is not None:
            node, checks = found
            demand(node.failure is None, f"{node.name} finds its own state right", failure=node.failure)
            if node.process is process:
                checks.look(node)
        else:
            for clients in (self.clients, self.visitors):
                clients.check()
            for faults in self.faults:
                faults.check()
        demand(not self._errors, "nothing fails that should not", first=self._errors[:1])

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict) -> None:
        error = context.get("exception")
        if not isinstance(error, DeadError):
            self._errors.append(f"{self.loop.current.name}: {context['message']} {error!r}")
