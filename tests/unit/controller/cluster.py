"""A controller with registered brokers, driven as the quorum drives it: decide, then replay."""

from typing import TypeVar

from tailrace.controller.image import MetadataImage
from tailrace.controller.machine import Controller
from tailrace.model.config import BrokerConfig
from tailrace.model.ids import Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.quorum import BrokerHeartbeatRequest, BrokerRegistrationRequest, BrokerRegistrationResponse
from tailrace.wire.schema import Message
from tailrace.wire.stored import decode_metadata_record, encode_metadata_record

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DIRECTORY_ID = Uuid(b"directory-number")
NOW_MS = 1_767_225_600_000
M = TypeVar("M", bound=Message)

Topic = CreateTopicsRequest.CreatableTopic
TopicConfigEntry = CreateTopicsRequest.CreatableTopicConfig


class Cluster:
    def __init__(self, *, brokers: int = 1, seed: int = 1, **settings: object) -> None:
        self.config = BrokerConfig(node_id=1, **settings)  # type: ignore[arg-type]
        self.controller = Controller(self.config, SimRandom(seed), cluster_id=CLUSTER_ID)
        self.records: list[Message] = []
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
        result = self.controller.op(request, NOW_MS)
        assert self.image is before, "an op only reads"
        for record in result.records:
            # As they come back from the log.
            self.controller.replay(len(self.records), decode_metadata_record(encode_metadata_record(record)))
            self.records.append(record)
        assert isinstance(result.response, response_type)
        return result.response

    def register(self, node_id: int, *, previous_broker_epoch: int = -1, unfence: bool = True) -> int:
        registration = BrokerRegistrationRequest(
            broker_id=node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes([node_id]) * 16,
            listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9091 + node_id)],
            log_dirs=[DIRECTORY_ID],
            previous_broker_epoch=previous_broker_epoch,
        )
        epoch = self.do(registration, BrokerRegistrationResponse).broker_epoch
        if unfence:
            self.unfence(node_id, epoch)
        return epoch

    def unfence(self, node_id: int, epoch: int) -> None:
        offset = self.image.next_offset
        heartbeat = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch, current_metadata_offset=offset)
        self.do(heartbeat, Message)

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
