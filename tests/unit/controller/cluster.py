"""A controller with registered brokers, driven as the quorum drives it: decide, then replay.

The controller is pure and asks the world for nothing, so there is nothing here that a simulator could give: brokers
are the requests that they would send.
"""

from collections.abc import Sequence
from itertools import count
from typing import TypeVar

from tailrace.controller.features import bootstrap_records, broker_features
from tailrace.controller.image import MetadataImage, PartitionImage, ResourceType
from tailrace.controller.machine import Controller
from tailrace.model.config import BrokerConfig
from tailrace.model.ids import Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.own import ReportReplicasRequest, ReportReplicasResponse
from tailrace.wire.apis.quorum import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tailrace.wire.schema import Message

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
NOW_MS = 1_767_225_600_000
M = TypeVar("M", bound=Message)

Topic = CreateTopicsRequest.CreatableTopic
TopicConfigEntry = CreateTopicsRequest.CreatableTopicConfig


def directory_id(node_id: int, number: int = 0) -> Uuid:
    return Uuid(b"directory-%03d-%02d" % (node_id, number))


class Cluster:
    def __init__(
        self, *, brokers: int = 1, seed: int = 1, features: bool = False, racks: int = 0, **settings: object
    ) -> None:
        """With `features` those of a new cluster are finalized; with `racks` broker n is in rack n modulo racks."""
        self.config = BrokerConfig(node_id=1, **settings)  # type: ignore[arg-type]
        self.controller = Controller(self.config, SimRandom(seed), cluster_id=CLUSTER_ID)
        self.records: list[Message] = []
        self.monotonic_ms = 0.0
        self.controller.activate(self.monotonic_ms)
        self._incarnations = count(1)
        self._racks = racks
        if features:
            self.replay(bootstrap_records(self.config))
        for node_id in range(1, brokers + 1):
            self.register(node_id)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def ask(self, request: Message, response_type: type[M]) -> M:
        """Decides without changing anything."""
        response = self.controller.op(request, NOW_MS).response
        assert isinstance(response, response_type)
        return response

    def do(self, request: Message, response_type: type[M]) -> M:
        before = self.image
        result = self.controller.op(request, NOW_MS, self.monotonic_ms)
        assert self.image is before, "an op only reads"
        self.replay(result.records)
        assert isinstance(result.response, response_type)
        return result.response

    def replay(self, records: Sequence[Message]) -> None:
        for record in records:
            # As they come back from the log.
            self.controller.replay(len(self.records), decode_metadata_record(encode_metadata_record(record)))
            self.records.append(record)

    def pass_time(self, milliseconds: float) -> None:
        """The quorum's timer: called at each deadline on the way."""
        end_ms = self.monotonic_ms + milliseconds
        while (deadline_ms := self.controller.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            decision = self.controller.on_deadline(self.monotonic_ms)
            self.replay(decision.records if decision else [])
        self.monotonic_ms = end_ms

    def silent(self) -> list[int]:
        """The brokers that the controller looks for."""
        return [broker.node_id for broker in self.controller.silent_brokers(self.monotonic_ms)]

    def registration(self, node_id: int, *, previous_broker_epoch: int = -1) -> BrokerRegistrationRequest:
        """The request of a new incarnation."""
        return BrokerRegistrationRequest(
            broker_id=node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=b"incarnation-%04d" % next(self._incarnations),
            listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9091 + node_id)],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in broker_features(self.config)
            ],
            rack=f"rack-{node_id % self._racks}" if self._racks else None,
            log_dirs=[directory_id(node_id)],
            previous_broker_epoch=previous_broker_epoch,
        )

    def register(self, node_id: int, *, previous_broker_epoch: int = -1, unfence: bool = True) -> int:
        registration = self.registration(node_id, previous_broker_epoch=previous_broker_epoch)
        epoch = self.do(registration, BrokerRegistrationResponse).broker_epoch
        if unfence:
            self.unfence(node_id, epoch)
        return epoch

    def unfence(self, node_id: int, epoch: int) -> None:
        response = self.heartbeat(node_id, epoch)
        assert response.error_code == 0

    def heartbeat(
        self, node_id: int, epoch: int | None = None, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        """The heartbeat of a broker that has seen all metadata."""
        request = BrokerHeartbeatRequest(
            broker_id=node_id,
            broker_epoch=self.image.brokers[node_id].epoch if epoch is None else epoch,
            current_metadata_offset=self.image.next_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        return self.do(request, BrokerHeartbeatResponse)

    def report(
        self, node_id: int, topic_name: str, log_end_offset: int, *, last_epoch: int = 0, is_damaged: bool = False
    ) -> ReportReplicasResponse:
        """How far the replica of partition 0 reaches."""
        replica = ReportReplicasRequest.Replica(
            log_end_offset=log_end_offset,
            last_epoch=last_epoch,
            is_damaged=is_damaged,
            leader_epoch=self.partition(topic_name).leader_epoch,
        )
        told = ReportReplicasRequest.Topic(topic_id=self.image.topics[topic_name].id, replicas=[replica])
        epoch = self.image.brokers[node_id].epoch
        request = ReportReplicasRequest(broker_id=node_id, broker_epoch=epoch, topics=[told])
        return self.do(request, ReportReplicasResponse)

    def live(self, milliseconds: float) -> None:
        """Time passes with all unfenced brokers heard."""
        for _ in range(int(milliseconds / 500)):
            for node_id, broker in self.image.brokers.items():
                if not broker.fenced:
                    self.heartbeat(node_id)
            self.pass_time(500)

    def proposal(
        self, topic_name: str, isr: Sequence[int], *, index: int = 0, sender: int | None = None
    ) -> AlterPartitionRequest:
        """A proposal of the leader, with what it knows now."""
        partition, brokers = self.partition(topic_name, index), self.image.brokers
        leader = partition.leader if sender is None else sender
        state = AlterPartitionRequest.BrokerState
        data = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[state(broker_id=node, broker_epoch=brokers[node].epoch) for node in isr],
        )
        topics = [AlterPartitionRequest.TopicData(topic_id=self.image.topics[topic_name].id, partitions=[data])]
        return AlterPartitionRequest(broker_id=leader, broker_epoch=brokers[leader].epoch, topics=topics)

    def expand(self, topic_name: str, node_id: int, *, index: int = 0) -> None:
        """A replica has caught up."""
        isr = [*self.partition(topic_name, index).isr, node_id]
        response = self.do(self.proposal(topic_name, isr, index=index), AlterPartitionResponse)
        assert response.topics[0].partitions[0].error_code == 0

    def partition(self, topic_name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[topic_name].partitions[index]

    def create(self, *topics: CreateTopicsRequest.CreatableTopic, validate_only: bool = False) -> CreateTopicsResponse:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        return self.do(request, CreateTopicsResponse)

    def rebuilt(self) -> MetadataImage:
        """The image that a new start replays from the same records."""
        controller = Controller(self.config, SimRandom(0), cluster_id=CLUSTER_ID)
        for offset, record in enumerate(self.records):
            controller.replay(offset, decode_metadata_record(encode_metadata_record(record)))
        return controller.image


def topic(
    name: str, partitions: int = -1, replication_factor: int = -1, **configs: str
) -> CreateTopicsRequest.CreatableTopic:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[TopicConfigEntry(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *replicas: list[int]) -> CreateTopicsRequest.CreatableTopic:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    return Topic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[assignment(partition_index=index, broker_ids=nodes) for index, nodes in enumerate(replicas)],
    )


def alter_topic(cluster: Cluster, name: str, key: str, value: str) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=name, configs=[change]
    )
    response = cluster.do(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0, response.responses[0].error_message
