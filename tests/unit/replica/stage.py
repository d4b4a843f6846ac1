"""Where the stories of the in-sync set are played: replicas of one partition, and the controller itself.

Brokers are those of `cluster`, with real logs, fetches and proposals; the controller is the real one, driven as in its
own tests. Nothing is left to chance: every message takes a millisecond, heartbeats come each half second, and leaders
look each second who lags (replica.lag.time.max.ms is 2 s, a broker's session 2.5 s). What is told of a command: what
leaders propose and the controller answers, each change of the partition, how far the leader's high watermark rises, and
what becomes of writes. Commands are the methods of `Stage`; a broker is a number, options are `name=value`.

A broker here has no lease: that one which is cut off stops leading is told elsewhere. A fenced one goes on fetching."""

import asyncio
from collections.abc import Sequence

from tailrace.broker.handlers.produce import PartitionAnswer, PendingProduce, Wait
from tailrace.controller.image import NO_LEADER, MetadataImage, PartitionImage
from tailrace.controller.partitions.change import RECOVERING
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from tailrace.wire.apis.data import ProduceResponse
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse
from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse
from tests.unit.controller import cluster as controllers
from tests.unit.replica.cluster import TOPIC, Cluster, Node
from tests.unit.replica.replicas import batch

CONTROLLER = 0
TRAVEL_SECONDS = 0.001
HEARTBEAT_SECONDS = 0.5
LOOK_SECONDS = 1.0
_ACKS = {"all": -1, "1": 1}


class Stage(Cluster):
    def __init__(self) -> None:
        self.loop = SimLoop(SimRandom(1))
        self.lines: list[str] = []

    def do(self, command: str) -> list[str]:
        name, *words = command.split()
        options = {key.replace("-", "_"): value for key, _, value in (word.partition("=") for word in words) if value}
        self.lines = []
        self.loop.run_until_complete(self._do(name, [word for word in words if "=" not in word], options))
        return self.lines

    async def _do(self, name: str, words: list[str], options: dict[str, str]) -> None:
        getattr(self, "do_" + name.replace("-", "_"))(*words, **options)
        self._note_changes()
        if name == "run":
            await asyncio.sleep(int(words[0]) / 1000)

    def tell(self, line: str) -> None:
        self.lines.append(f"{self.loop.now * 1000:5.0f} ms  {line}")

    # ---- the commands

    def do_cluster(self, *, brokers: str, features: str = "yes", **settings: str) -> None:
        """Broker 1 leads the partition, and all are in sync. Settings are those of the topic."""
        super().__init__(self.loop, nodes=int(brokers), seed=1)
        self.controller = controllers.Cluster(
            brokers=int(brokers), features=features == "yes", broker_session_timeout_ms=2500
        )
        self.slow_seconds: dict[int, float] = {}
        self.fenced: set[int] = set()
        self._has_proof = True
        self._refusal = ""
        self._told: PartitionImage | None = None
        self._published: MetadataImage | None = None
        self._high_watermarks: dict[Node, int] = {}
        for node in self.nodes.values():
            node.start()
            self._heartbeat(node)
        self.controller.create(controllers.assigned(TOPIC, list(self.nodes)))
        for name, value in settings.items():
            self.do_set(name.replace("_", "."), value)
        self._tasks = [
            self.loop.create_task(self._heartbeats()),
            self.loop.create_task(self._look_for_lagging()),
        ]
        self.loop.after_turn = self._note_high_watermarks

    def do_run(self, _milliseconds: str) -> None:
        """Time passes."""

    def do_write(
        self, number: str, value: str, *, acks: str = "all", timeout: str = "9000", producer: str = ""
    ) -> None:
        """`producer` sends its first record, as often as it is told to."""
        partition = self[int(number)].partition()
        idempotent = {"producer_id": int(producer), "producer_epoch": 0, "base_sequence": 0} if producer else {}
        try:
            result = partition.append(batch(value.encode(), **idempotent), required_acks=_ACKS[acks])
        except KafkaError as error:
            self.tell(f"{number} refuses {value}: {error.code.name}")
            return
        self._note_high_watermarks()
        if not partition.must_wait(result, _ACKS[acks]):
            self.tell(f"{number} acknowledges {value}")
            return
        answer = PartitionAnswer()
        wait = Wait(partition, result.next_offset, answer, partition.leader_epoch)
        pending = PendingProduce(ProduceResponse(), [wait], int(timeout))

        def tell(_response: ProduceResponse) -> None:
            code = ErrorCode(answer.error_code)
            if not self[int(number)].is_up:
                return  # Nobody is there to say it.
            self._note_high_watermarks()
            self.tell(f"{number} does not confirm {value}: {code.name}" if code else f"{number} acknowledges {value}")

        pending.deliver_to(tell)

    def do_cut(self, number: str, *others: str) -> None:
        """From some, or from all and the controller; `cut 1 controller` from that alone."""
        if not others:
            self.isolate(int(number))
        for other in others:
            target = CONTROLLER if other == "controller" else int(other)
            self.cut |= {(int(number), target), (target, int(number))}

    def do_heal(self) -> None:
        self.heal()
        self.slow_seconds.clear()

    def do_slow(self, number: str, milliseconds: str) -> None:
        """What it asks for takes so long to get there."""
        self.slow_seconds[int(number)] = int(milliseconds) / 1000

    def do_deafen(self, number: str) -> None:
        """The metadata does not reach it for now."""
        self.deaf.add(int(number))

    def do_hear(self, number: str) -> None:
        self.deaf.remove(int(number))
        self[int(number)].follow(self.image())

    def do_hold(self) -> None:
        """Proposals stay on their way to the controller."""
        self.alter_gate.clear()

    def do_refuse(self, code: str) -> None:
        """Proposals are answered so, whatever they are; `lost` are those that do not get through."""
        self._refusal = code

    def do_release(self) -> None:
        self._refusal = ""
        self.alter_gate.set()

    def do_fence(self, number: str) -> None:
        """It asks for it, and for nothing else until it is unfenced."""
        self.fenced.add(int(number))
        self._heartbeat(self[int(number)])

    def do_unfence(self, number: str) -> None:
        self.fenced.remove(int(number))
        self._heartbeat(self[int(number)])

    def do_stop(self, number: str) -> None:
        """It tells the controller, and has its leaderships moved away."""
        self.controller.heartbeat(int(number), want_shut_down=True)
        self._note_changes()
        self[int(number)].crash()

    def do_crash(self, number: str) -> None:
        """The process dies; the kernel has what it wrote."""
        self[int(number)].crash()

    def do_lose_power(self, number: str) -> None:
        self[int(number)].crash(power_loss=True)

    def do_start(self, number: str, *, proof: str = "yes", disk: str = "") -> None:
        """With proof, it tells the controller that nothing of what it had was lost; `disk=new` is an empty one."""
        self._has_proof = proof == "yes"
        if disk == "new":
            self[int(number)].disk.remove_folder("data")
        self[int(number)].start()
        self._heartbeat(self[int(number)])
        self._note_changes()
        self[int(number)].follow(self.image())

    def do_set(self, name: str, value: str) -> None:
        controllers.alter_topic(self.controller, TOPIC, name, value)

    def do_reassign(self, *replicas: str) -> None:
        request = AlterPartitionReassignmentsRequest
        wanted = request.ReassignablePartition(partition_index=0, replicas=[int(each) for each in replicas])
        topics = [request.ReassignableTopic(name=TOPIC, partitions=[wanted])]
        response = self.controller.do(request(topics=topics), AlterPartitionReassignmentsResponse)
        assert not response.responses[0].partitions[0].error_code

    def do_elect(self, kind: str) -> None:
        asked = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        request = ElectLeadersRequest(election_type=int(kind == "unclean"), topic_partitions=[asked])
        (result,) = self.controller.do(request, ElectLeadersResponse).replica_election_results
        self.tell(f"controller answers: {ErrorCode(result.partition_result[0].error_code).name}")

    def do_propose(self, number: str, *members: str, **changes: str) -> None:
        """A proposal as a broker could make it, and the controller's answer. `3@7` is broker 3 in its epoch 7."""
        request = self._proposal(int(number), members)
        partition = request.topics[0].partitions[0]
        for name, value in changes.items():
            if name == "topic":
                request.topics[0].topic_id = value.encode().ljust(16)
            else:
                owner = request if hasattr(request, name) else partition
                setattr(owner, name, getattr(owner, name) + int(value) if value[0] in "+-" else int(value))
        self.tell(f"controller answers: {describe_answer(self.controller.do(request, AlterPartitionResponse))}")

    def do_status(self) -> None:
        for node in self.nodes.values():
            self.lines.append(describe_node(node))

    # ---- what goes on by itself

    async def _heartbeats(self) -> None:
        while True:
            for node in self.nodes.values():
                if node.is_up and (node.id, CONTROLLER) not in self.cut:
                    self._heartbeat(node)
            self._note_changes()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _heartbeat(self, node: Node) -> None:
        epoch = node.replicas.broker_epoch
        if self.controller.image.brokers[node.id].epoch == epoch:
            self.controller.heartbeat(node.id, epoch, want_fence=node.id in self.fenced)

    async def _look_for_lagging(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for node in self.nodes.values():
                if node.is_up:
                    for partition in node.replicas.partitions.values():
                        partition.shrink_isr()

    def _note_high_watermarks(self, _process: Process | None = None) -> None:
        for node in self.nodes.values():
            partition = node.replicas.partitions.get((TOPIC, 0)) if node.is_up else None
            if partition is None:
                self._high_watermarks.pop(node, None)
                continue
            if partition.is_leader and partition.high_watermark > self._high_watermarks.get(node, 0):
                self.tell(f"{node.id} confirms up to {partition.high_watermark}")
            self._high_watermarks[node] = partition.high_watermark

    def _note_changes(self) -> None:
        """Time passes for the controller, and what it has decided is told to all."""
        self.controller.pass_time(max(0.0, self.loop.now * 1000 - self.controller.monotonic_ms))
        partition = self.controller.partition(TOPIC)
        if partition != self._told:
            self.tell(f"controller: {describe_partition(partition)}")
            self._told = partition
        if self.image() is not self._published:
            self._published = self.image()
            self.publish()

    # ---- the controller, as the brokers of `cluster` see it

    def register(self, node_id: NodeId) -> int:
        old = self.controller.image.brokers[node_id].epoch
        return self.controller.register(node_id, previous_broker_epoch=old if self._has_proof else -1, unfence=False)

    def image(self) -> MetadataImage:
        return self.controller.image

    def publish(self) -> None:
        for node in self.nodes.values():
            if node.id not in self.deaf:
                node.follow(self.image())

    async def alter_partition(self, node_id: NodeId, request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked = request.topics[0].partitions[0]
        self.tell(f"{node_id} proposes {join(asked.new_isr)}")
        await self.travel(node_id, CONTROLLER)
        await self.alter_gate.wait()
        if self._refusal == "lost":
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the controller cannot be reached")
        response = self._decide_proposal(request)
        if not response.topics or response.topics[0].partitions[0].error_code:
            self.tell(f"controller answers {node_id}: {describe_answer(response)}")
        self._note_changes()
        await self.travel(CONTROLLER, node_id)
        return response

    def _decide_proposal(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if not self._refusal:
            return self.controller.do(request, AlterPartitionResponse)
        refused = AlterPartitionResponse.PartitionData(partition_index=0, error_code=ErrorCode[self._refusal])
        topic = AlterPartitionResponse.TopicData(topic_id=request.topics[0].topic_id, partitions=[refused])
        return AlterPartitionResponse(topics=[topic])

    async def allow_truncation(self, request: AllowTruncationRequest) -> AllowTruncationResponse:
        await self.travel(NodeId(request.broker_id), CONTROLLER)
        return self.controller.do(request, AllowTruncationResponse)

    async def travel(self, source: int, target: int) -> None:
        await asyncio.sleep(TRAVEL_SECONDS + self.slow_seconds.get(source, 0.0))
        is_down = any(not self.nodes[NodeId(each)].is_up for each in (source, target) if each != CONTROLLER)
        if is_down or (source, target) in self.cut:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{source} cannot reach {target}")

    def _proposal(self, number: int, members: Sequence[str]) -> AlterPartitionRequest:
        request = self.controller.proposal(TOPIC, [], sender=number)
        for member in members:
            node_id, _, epoch = member.partition("@")
            broker = self.controller.image.brokers.get(int(node_id))
            broker_epoch = int(epoch) if epoch else -1 if broker is None else broker.epoch
            state = AlterPartitionRequest.BrokerState(broker_id=int(node_id), broker_epoch=broker_epoch)
            request.topics[0].partitions[0].new_isr_with_epochs.append(state)
        return request


# ---- how it is told


def join(nodes: Sequence[int]) -> str:
    return " ".join(map(str, nodes)) or "nobody"


def describe_partition(partition: PartitionImage) -> str:
    leader = "nobody leads" if partition.leader == NO_LEADER else f"{partition.leader} leads"
    words = [f"{leader}, epoch {partition.leader_epoch}, in sync {join(partition.isr)}"]
    words += [f"eligible {join(partition.eligible_leader_replicas)}"] * bool(partition.eligible_leader_replicas)
    words += [f"led last {join(partition.last_known_elr)}"] * bool(partition.last_known_elr)
    words += ["records may be lost"] * (partition.leader_recovery_state == RECOVERING)
    return ", ".join(words)


def describe_answer(response: AlterPartitionResponse) -> str:
    if response.error_code:
        return ErrorCode(response.error_code).name
    answer = response.topics[0].partitions[0]
    return ErrorCode(answer.error_code).name if answer.error_code else f"in sync {join(answer.isr)}"


def describe_node(node: Node) -> str:
    if not node.is_up:
        return f"{node.id} is down"
    partition = node.partition()
    role = "leads" if partition.is_leader else f"follows {partition.leader_id if partition.leader_id > 0 else 'nobody'}"
    proposal = f", proposed {join(partition.proposal.isr)}" if partition.proposal is not None else ""
    values = " ".join(value.decode() for value in node.values()) or "empty"
    return (
        f"{node.id} {role} in epoch {partition.leader_epoch}, in sync {join(partition.isr)}{proposal}; "
        f"confirmed {partition.high_watermark}; log {values}"
    )
