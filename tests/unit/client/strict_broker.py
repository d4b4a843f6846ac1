"""A scripted broker that checks sequences as Kafka does, and fails in every way it can."""

from tailrace.client.lanes import ACKS_NONE, ProducerIdentity
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NO_SEQUENCE
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.records import iterate_records, read_header

from .peer import HANG_UP, SILENCE, Peer

REMEMBERED = 5
LOST = "lost"
FAULTS = [
    None,
    HANG_UP,
    LOST,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
]


class StrictBroker(Peer):
    """Appends a batch only if it is the next one of its producer, or the first that it ever sees of it, as Kafka does;
    knows the last five again. `faults` tell what to do with the next Produce requests instead: LOST is to append and
    hang up."""

    def __init__(self, *, partitions: int = 1) -> None:
        super().__init__(partitions=partitions)
        self.scripts |= {ProduceRequest: self._produce, InitProducerIdRequest: self._identify}
        self.faults: list[ErrorCode | str | None] = []
        self.identify_faults: list[str] = []
        self.values: dict[int, list[bytes | None]] = {}
        self.batch_bytes_max = 1 << 20
        self.identities: list[ProducerIdentity] = []
        self._sequences: dict[tuple[int, ProducerIdentity], list[tuple[int, int]]] = {}

    def _identify(self, _request: InitProducerIdRequest) -> InitProducerIdResponse | str:
        if self.identify_faults:
            return self.identify_faults.pop()
        self.identities.append(ProducerIdentity(7 + len(self.identities), 0))
        return InitProducerIdResponse(producer_id=self.identities[-1].producer_id, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> ProduceResponse | str:
        ((data,),) = (topic.partition_data for topic in request.topic_data)
        fault = self.faults.pop() if self.faults else None
        if fault in {HANG_UP, SILENCE}:
            return fault
        code = fault if isinstance(fault, ErrorCode) else self._append(data.index, bytes(data.records))
        if fault == LOST:
            return HANG_UP
        if request.acks == ACKS_NONE:
            return SILENCE
        result = ProduceResponse.PartitionProduceResponse(index=data.index, error_code=code)
        return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[result])])

    def _append(self, partition: int, batch: bytes) -> ErrorCode:
        header = read_header(batch)
        if len(batch) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if header.base_sequence != NO_SEQUENCE:
            identity = ProducerIdentity(header.producer_id, header.producer_epoch)
            known = self._sequences.setdefault((partition, identity), [])
            this = header.base_sequence, header.last_sequence
            if this in known[-REMEMBERED:]:
                return ErrorCode.NONE
            if known and header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            known.append(this)
        records = iterate_records(batch, max_decompressed_bytes=1 << 20)
        self.values.setdefault(partition, []).extend(record.value for record in records)
        return ErrorCode.NONE
