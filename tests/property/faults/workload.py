"""What clients do to a broker, at random, and what they learn from its answers."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import cast

from tailrace.broker.context import UnanswerableError
from tailrace.log.plain_batches import read_plain
from tailrace.log.validation import Origin
from tailrace.model.errors import KafkaError
from tailrace.replica.partition import Partition
from tailrace.sim.checks.history import demand
from tailrace.sim.cluster import Node
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)
from tailrace.wire.apis.data import DeleteRecordsRequest, ProduceRequest
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tailrace.wire.records import Compression, Record, build_batch
from tests.property.faults.checks import check_partition
from tests.property.faults.model import (
    ABSENT,
    ACKED,
    UNKNOWN,
    Batch,
    PartitionModel,
    ProducerModel,
    SentRecord,
    TopicModel,
    TopicState,
)
from tests.property.faults.world import call

NAMES = ("a", "b", "c.d")
KEYS = (b"k1", b"k2", b"k3", b"", b"long" * 12)
# The answers to a Produce.
_UNKNOWN_TOPIC, _NOT_LEADER, _TIMED_OUT, _LOAD_IN_PROGRESS, _STORAGE_ERROR = 3, 6, 7, 14, 56
_ID_TRIES, _ID_PAUSE_SECONDS = 50, 0.1
_UNCERTAIN = (_NOT_LEADER, _TIMED_OUT, _STORAGE_ERROR)
_TOO_LARGE, _LIST_TOO_LARGE, _INVALID_RECORD, _INVALID_TIMESTAMP = 10, 18, 87, 32
_REFUSALS = (_TOO_LARGE, _LIST_TOO_LARGE, _INVALID_RECORD, _INVALID_TIMESTAMP)
_OUT_OF_ORDER, _INVALID_EPOCH, _POLICY_VIOLATION = 45, 47, 44
_EXPIRATION_MS = 86_400_000
_MAX_SEQUENCE = 2**31 - 1


def pick_configs(random: Random) -> dict[str, str]:
    choices = {
        "cleanup.policy": ["delete", "delete", "compact", "compact,delete"],
        "internal.segment.bytes": ["1024", "2000", "5000", ""],
        "segment.ms": ["2000", "100000", ""],
        "index.interval.bytes": ["0", "200", "4096"],
        "segment.index.bytes": ["50", "200", "", ""],
        "flush.messages": ["1", "1", "7", "", "", ""],
        "flush.ms": ["500", "3000", "", ""],
        "retention.ms": ["5000", "60000", "-1", "-1", ""],
        "retention.bytes": ["2500", "-1", "-1", "-1"],
        "delete.retention.ms": ["0", "4000", ""],
        "min.cleanable.dirty.ratio": ["0", "0", "0.5"],
        "max.compaction.lag.ms": ["3000", "", ""],
        "min.compaction.lag.ms": ["3000", "", "", ""],
        "compression.type": ["producer", "producer", "gzip", "lz4", "zstd", "snappy", "uncompressed"],
        "message.timestamp.type": ["CreateTime", "CreateTime", "CreateTime", "LogAppendTime"],
        "file.delete.delay.ms": ["0", "1000", "60000"],
        "record.validation.deep": ["true", "", ""],
    }
    return {
        name: value for name, values in choices.items() if random.random() < 0.6 and (value := random.choice(values))
    }


class Workload:
    """The clients of one life. `topics` and all below it outlive it."""

    def __init__(
        self,
        node: Node,
        random: Random,
        topics: dict[str, TopicModel],
        alternatives: dict[str, list[TopicState]],
        *,
        life: int,
        numbers: Iterator[int],
    ) -> None:
        assert node.broker is not None
        self.node = node
        self.broker = node.broker
        self.clock = node.broker.ports.clock
        self.random = random
        self.topics = topics
        self.alternatives = alternatives
        self.life = life
        self.numbers = numbers
        self._metadata = asyncio.Lock()
        self._changing: set[str] = set()

    async def run(self, steps: int) -> None:
        actions = [
            (self.create_topic, 3),
            (self.delete_topic, 1),
            (self.grow_topic, 1),
            (self.alter_topic, 2),
            (self.produce, 30),
            (self.produce_idempotent, 18),
            (self.produce_express, 4),
            (self.delete_records, 2),
            (self.check, 4),
            (self.sleep, 8),
            (self.jump, 1),
        ]
        kinds, weights = zip(*actions, strict=True)
        for _ in range(steps):
            await self.random.choices(kinds, weights)[0]()
            self.note_synced()

    @property
    def is_faulty(self) -> bool:
        """A fault was injected in this life, so that errors of the disk may be answered."""
        return self.node.is_sabotaged

    def note_synced(self) -> None:
        """What the broker claims to be on the device must survive a power loss."""
        for model in self._partitions():
            partition = self.broker.replicas.partitions.get((model.topic.name, model.index))
            if partition is not None and partition.topic_id == model.topic.topic_id:
                model.durable_end = max(model.durable_end, partition.log.recovery_point)

    def _partitions(self) -> list[PartitionModel]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def _pick_partition(self) -> PartitionModel | None:
        partitions = self._partitions()
        return self.random.choice(partitions) if partitions else None

    # Time

    async def sleep(self) -> None:
        await asyncio.sleep(self.random.choice([0, 0.001, 0.05, 0.5, 2.5]))

    async def jump(self) -> None:
        """The process, and these clients with it, are stopped for a while."""
        loop = cast(SimLoop, asyncio.get_running_loop())
        loop.at(loop.now + self.random.choice([4, 20, 600, 3600]), self.node.resume)
        self.node.pause()
        await asyncio.sleep(0.01)

    # Metadata: one request at a time, so that at most one is uncertain for want of an answer

    async def create_topic(self) -> None:
        async with self._metadata:
            free = [name for name in NAMES if name not in self.topics]
            if not free:
                return
            name, count, configs = self.random.choice(free), self.random.randrange(1, 3), pick_configs(self.random)
            topic = TopicModel(name, None, configs)
            topic.grow(count)
            self._may_become(name, TopicState(topic, count, configs))
            result = (await call(self.broker, _create_request(name, count, configs), 7)).topics[0]
            if self._is_settled(result.error_code, name):
                topic.topic_id = result.topic_id
                self.topics[name] = topic

    async def delete_topic(self) -> None:
        async with self._metadata:
            if not self.topics:
                return
            name = self.random.choice(list(self.topics))
            self._may_become(name, TopicState(None, 0, {}))
            self._changing.add(name)
            answer = await call(self.broker, DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5)
            self._changing.discard(name)
            if self._is_settled(answer.responses[0].error_code, name):
                del self.topics[name]

    async def grow_topic(self) -> None:
        async with self._metadata:
            topic = self.topics.get(self.random.choice(NAMES))
            if topic is None or len(topic.partitions) >= 3:
                return
            count = len(topic.partitions) + 1
            self._may_become(topic.name, TopicState(topic, count, topic.configs))
            asked = CreatePartitionsRequest.CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
            answer = await call(self.broker, CreatePartitionsRequest(topics=[asked], timeout_ms=5000), 3)
            if self._is_settled(answer.results[0].error_code, topic.name):
                topic.grow(count)

    async def alter_topic(self) -> None:
        async with self._metadata:
            topic = self.topics.get(self.random.choice(NAMES))
            if topic is None:
                return
            changes = pick_configs(self.random)
            configs = {**topic.configs, **changes}
            topic.note_configs(configs)
            self._may_become(topic.name, TopicState(topic, len(topic.partitions), configs))
            self._changing.add(topic.name)
            answer = await call(self.broker, _alter_request(topic.name, changes), 1)
            self._changing.discard(topic.name)
            if self._is_settled(answer.responses[0].error_code, topic.name):
                topic.configs = configs

    def _may_become(self, name: str, state: TopicState) -> None:
        self.alternatives.setdefault(name, []).append(state)

    def _is_settled(self, code: int, name: str) -> bool:
        if code == 0:
            del self.alternatives[name]
            return True
        demand(code == _STORAGE_ERROR and self.is_faulty, "metadata can be changed", name=name, code=code)
        return False

    # Records

    def _make_records(self, topic: TopicModel, *, is_timely: bool = False) -> list[SentRecord]:
        random, now_ms = self.random, self.clock.wall_ms()
        needs_key = "compact" in topic.configs.get("cleanup.policy", "") or random.random() < 0.7
        times = [now_ms] if is_timely else [now_ms, now_ms, now_ms - 3000, now_ms + 60_000, -1, 7, now_ms - 86_400_000]
        time = random.choice(times)
        records = []
        for _ in range(random.choice([1, 1, 2, 3, 8])):
            number = next(self.numbers)
            if not is_timely and random.random() < 0.2:
                time = random.choice(times)
            key = random.choice(KEYS) if needs_key else None
            value = b"%d" % number * random.choice([1, 1, 10, 40]) if random.random() < 0.85 else None
            records.append(SentRecord(number, time, key, value))
        return records

    def _encode(self, batch: Batch) -> memoryview:
        records = [
            Record(index, each.timestamp, each.key, each.value, (("n", b"%d" % each.number),))
            for index, each in enumerate(batch.records)
        ]
        producer = batch.producer
        data = build_batch(
            records,
            compression=self.random.choice([Compression.NONE, Compression.NONE, *Compression]),
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=batch.sequence,
        )
        return memoryview(bytearray(data))

    async def produce(self) -> None:
        partition = self._pick_partition()
        if partition is None:
            return
        batch = Batch(self._make_records(partition.topic), self.clock.wall_ms())
        partition.send(batch)
        code, base_offset = await self._send(partition, batch, acks=self.random.choice([1, 1, -1, -1, 0]))
        self._settle(partition, batch, code, base_offset)

    async def _send(self, partition: PartitionModel, batch: Batch, *, acks: int) -> tuple[int, int]:
        """Error code and offset; acks=0 learns nothing."""
        if batch.producer is not None and self.random.random() < 0.5 and (told := self._send_express(partition, batch)):
            return told
        topic = partition.topic
        data = ProduceRequest.PartitionProduceData(index=partition.index, records=self._encode(batch))
        asked = ProduceRequest.TopicProduceData(name=topic.name, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[asked])
        was_synced = topic.syncs_each and topic.name not in self._changing
        try:
            answer = await call(self.broker, request, 11)
        except UnanswerableError:
            return _TIMED_OUT, -1
        if answer is None:
            return _TIMED_OUT, -1
        result = answer.responses[0].partition_responses[0]
        if result.error_code == 0 and was_synced and topic.syncs_each and topic.name not in self._changing:
            partition.durable_end = max(partition.durable_end, result.base_offset + len(batch.records))
        return result.error_code, result.base_offset

    def _settle(self, partition: PartitionModel, batch: Batch, code: int, base_offset: int) -> None:
        if code == 0:
            partition.note_acked(batch, base_offset)
        elif code not in _UNCERTAIN:
            is_gone = code == _UNKNOWN_TOPIC and (
                partition.topic.name in self._changing or self.topics.get(partition.topic.name) is not partition.topic
            )
            demand(code in _REFUSALS or is_gone, "a good batch is taken", partition=partition, code=code)
            if batch.base_offset < 0:  # Else the topic would not take it any more, but has it.
                batch.status = ABSENT
        else:
            is_excused = code == _TIMED_OUT or self.is_faulty or partition.topic.name in self._changing
            is_excused = is_excused or self.topics.get(partition.topic.name) is not partition.topic
            demand(is_excused, "a sound disk takes records", partition=partition, code=code)

    def _find_express(self, model: PartitionModel) -> Partition | None:
        """If it takes plain batches."""
        partition = self.broker.replicas.partitions.get((model.topic.name, model.index))
        is_meant = partition is not None and partition.topic_id == model.topic.topic_id
        return partition if is_meant and partition.takes_plain else None

    def _send_express(self, model: PartitionModel, batch: Batch) -> tuple[int, int] | None:
        """The short way of an idempotent producer's batch; None if it is not for this one."""
        partition = self._find_express(model)
        plain = partition and read_plain(self._encode(batch), partition.plain_rules, self.clock.wall_ms())
        if not partition or not plain or not plain[4]:
            return None
        try:
            if partition.log.producers.check(plain[4], origin=Origin.CLIENT) is not None:
                return None
            return 0, partition.append_plain([plain])
        except KafkaError as error:
            return error.code, -1

    async def produce_express(self) -> None:
        """The short way of plain batches, as `broker.serving.express` goes it."""
        model = self._pick_partition()
        partition = model and self._find_express(model)
        if not model or not partition:
            return
        batches = [Batch(self._make_records(model.topic), self.clock.wall_ms()) for _ in range(3)]
        plain = [read_plain(self._encode(batch), partition.plain_rules, self.clock.wall_ms()) for batch in batches]
        taken = [(batch, each) for batch, each in zip(batches, plain, strict=True) if each is not None]
        if not taken:
            return
        for batch, _ in taken:
            model.send(batch)
        try:
            offset = partition.append_plain([each for _, each in taken])
        except KafkaError as error:
            demand(error.code == _STORAGE_ERROR and self.is_faulty, "a sound disk takes records", error=error)
            return
        for batch, _ in taken:
            model.note_acked(batch, offset)
            offset = batch.next_offset

    async def delete_records(self) -> None:
        model = self._pick_partition()
        partition = model and self.broker.replicas.partitions.get((model.topic.name, model.index))
        if not model or not partition or partition.topic_id != model.topic.topic_id:
            return
        offset = self.random.randrange(partition.log.log_start_offset, partition.high_watermark + 1)
        offset = self.random.choice([offset, offset, -1])
        model.asked_start = max(model.asked_start, partition.high_watermark if offset == -1 else offset)
        asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=model.index, offset=offset)
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=model.topic.name, partitions=[asked])]
        answer = await call(self.broker, DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
        result = answer.topics[0].partitions[0]
        if result.error_code == 0:
            model.deleted_start = max(model.deleted_start, result.low_watermark)
        else:
            is_excused = self.is_faulty or result.error_code == _POLICY_VIOLATION
            demand(is_excused, "records can be deleted", partition=model, code=result.error_code)

    async def check(self) -> None:
        model = self._pick_partition()
        if model is None or model.topic.name in self._changing:
            return
        try:
            check_partition(self.broker, model, self.random, self.clock.wall_ms())
        except (KafkaError, OSError, AssertionError):
            if not self.is_faulty:
                raise

    # Idempotence

    async def produce_idempotent(self) -> None:
        partition = self._pick_partition()
        if partition is None:
            return
        if len(partition.producers) < 2 or self.random.random() < 0.05:
            await self._begin_producer(partition)
            return
        producer = self.random.choice(partition.producers)
        last = producer.batches[-1] if producer.batches else None
        roll = self.random.random()
        if last is None or (last.status != UNKNOWN and roll < 0.75):
            await self._send_next(partition, producer)
        elif last.status == UNKNOWN or roll < 0.88:
            await self._resend(partition, producer, last)
        elif roll < 0.94:
            await self._resend(partition, producer, self.random.choice(producer.batches[-7:]))
        else:
            await self._send_gap(partition, producer)

    async def _begin_producer(self, partition: PartitionModel) -> None:
        for _ in range(_ID_TRIES):
            answer = await call(self.broker, InitProducerIdRequest(transactional_id=None, producer_id=-1), 3)
            if answer.error_code != _LOAD_IN_PROGRESS or self.is_faulty:
                break
            await asyncio.sleep(_ID_PAUSE_SECONDS)  # The controller's disk is slow: clients ask again.
        if answer.error_code:
            is_later = answer.error_code == _LOAD_IN_PROGRESS
            demand(is_later and self.is_faulty, "producer ids can be had", error=answer.error_code)
            return
        first = self.random.choice([0, 0, _MAX_SEQUENCE - 2])
        partition.producers.append(ProducerModel(answer.producer_id, answer.producer_epoch, first))

    def _is_sure(self, producer: ProducerModel) -> bool:
        last = producer.batches[-1]
        return producer.is_sure and self.clock.wall_ms() - last.sent_ms < _EXPIRATION_MS - 1000

    async def _send_next(self, partition: PartitionModel, producer: ProducerModel) -> None:
        previous = producer.batches[-1] if producer.batches else None
        batch = Batch(
            self._make_records(partition.topic, is_timely=True),
            self.clock.wall_ms(),
            producer=producer,
            sequence=producer.next_sequence,
            life=self.life,
        )
        producer.batches.append(batch)
        producer.next_sequence = (producer.next_sequence + len(batch.records)) & _MAX_SEQUENCE
        partition.send(batch)
        was_lost = previous is not None and previous.status == ABSENT
        was_sure = previous is None or self._is_sure(producer)
        code, base_offset = await self._send(partition, batch, acks=self.random.choice([1, -1]))
        if code == _OUT_OF_ORDER and (was_lost or not was_sure):
            # The batch before it is lost: a real client would begin anew.
            batch.status = ABSENT
            self._drop(partition, producer)
            return
        self._settle(partition, batch, code, base_offset)
        self._note_written(partition, producer, batch)

    def _note_written(self, partition: PartitionModel, producer: ProducerModel, batch: Batch) -> None:
        if batch.status == ABSENT:
            self._drop(partition, producer)
        elif batch.status == ACKED and producer.batches and batch is producer.batches[-1]:
            producer.is_sure = True

    async def _resend(self, partition: PartitionModel, producer: ProducerModel, batch: Batch) -> None:
        """The answer of a duplicate is that of the original; what was never written is written now."""
        is_last = batch is producer.batches[-1]
        is_written = batch.base_offset >= 0
        is_sure = self._is_sure(producer)
        if (is_written or not is_last) and not is_sure:
            return  # The producer may have been forgotten: the batch would rightly be written again.
        is_remembered = is_last or (batch.life == self.life and batch in producer.batches[-5:])
        if batch.status == ABSENT:
            if not is_last:
                return
            batch.status = UNKNOWN
        code, base_offset = await self._send(partition, batch, acks=self.random.choice([1, -1]))
        if code == _OUT_OF_ORDER and not (is_written and is_remembered):
            if is_last:
                batch.status = ABSENT if batch.base_offset < 0 else batch.status
                self._drop(partition, producer)
            return
        self._settle(partition, batch, code, base_offset)
        if is_last:
            self._note_written(partition, producer, batch)

    async def _send_gap(self, partition: PartitionModel, producer: ProducerModel) -> None:
        """A batch that cannot be next, or one of an older epoch, is refused if the producer is known."""
        if not self._is_sure(producer) or producer.batches[-1].status != ACKED:
            return
        sequence = (producer.next_sequence + 7) & _MAX_SEQUENCE
        batch = Batch(self._make_records(partition.topic, is_timely=True), 0, producer=producer, sequence=sequence)
        partition.send(batch)
        batch.status = ABSENT
        code, _ = await self._send(partition, batch, acks=1)
        is_excused = code in _UNCERTAIN + _REFUSALS + (_UNKNOWN_TOPIC,)
        demand(code == _OUT_OF_ORDER or is_excused, "a gap is refused", partition=partition, code=code)

    def _drop(self, partition: PartitionModel, producer: ProducerModel) -> None:
        if producer in partition.producers:
            partition.producers.remove(producer)


def _create_request(name: str, count: int, configs: dict[str, str]) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def _alter_request(name: str, changes: dict[str, str]) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
            for key, value in changes.items()
        ],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])
