"""What must hold of a broker and of its files at any moment, compared with the model or with a full scan."""

from random import Random
from struct import iter_unpack

from tailrace.broker.broker import Broker
from tailrace.log.log import Log
from tailrace.log.producers import ProducerStates
from tailrace.replica.partition import Partition
from tailrace.sim.checks.history import demand
from tailrace.sim.disk import SimDisk
from tailrace.wire.apis.data import FetchRequest, ListOffsetsRequest
from tailrace.wire.records import crc_is_valid, iterate_headers, iterate_records
from tests.property.faults.model import PartitionModel, Row
from tests.property.faults.world import DATA, call_now

BOMB = 1 << 20
_OUT_OF_RANGE = 1
_STORAGE_ERROR = 56
_OFFSET_NOT_AVAILABLE = 78


def rows_of(data: bytes, from_offset: int, *, allow_partial: bool = False) -> list[Row]:
    rows = []
    for position, header in iterate_headers(data, allow_partial=allow_partial):
        batch = data[position : position + header.size_bytes]
        demand(crc_is_valid(batch, 0, header), "what is stored has a good CRC", header=header)
        rows += [
            Row(
                record.offset,
                int(record.headers[0][1]),
                record.timestamp,
                record.key,
                record.value,
                header.leader_epoch,
            )
            for record in iterate_records(batch, max_decompressed_bytes=BOMB)
            if record.offset >= from_offset
        ]
    return rows


def scan(log: Log, end: int) -> list[Row]:
    """All records in [log start, end), by looking at every batch of every segment, without any index."""
    rows = []
    for segment in log.segments:
        data = segment.file.read(0, segment.size_bytes)
        rows += [row for row in rows_of(data, log.log_start_offset) if row.offset < end]
    return rows


def check_partition(
    broker: Broker, model: PartitionModel, random: Random, now_ms: int, *, restarted: bool = False
) -> None:
    """In one turn, so that nothing moves meanwhile."""
    partition = broker.replicas.find(model.topic.name, model.index)
    log = partition.log
    model.check_bounds(log.log_start_offset, partition.high_watermark, log.log_end_offset, now_ms)
    rows = scan(log, log.log_end_offset)
    model.check_rows(rows, log_start=log.log_start_offset, end=log.log_end_offset)
    _check_epochs(log, rows)
    visible = [row for row in rows if row.offset < partition.high_watermark]
    if log.is_offline:
        return
    if restarted and random.random() < 0.5:
        check_by_fetch(broker, partition, visible, log.log_start_offset, max_bytes=random.choice([1, 700, BOMB]))
    for _ in range(4):
        _check_fetch(broker, partition, visible, random)
        _check_time(broker, partition, visible, random)
    _check_newest(broker, partition, rows)


def _check_epochs(log: Log, rows: list[Row]) -> None:
    entries = log.epochs.entries
    for row in rows:
        epoch = log.epochs.epoch_for(row.offset)
        demand(epoch == row.leader_epoch, "the history knows each epoch", log=log.folder, row=row, entries=entries)


def check_by_fetch(broker: Broker, partition: Partition, rows: list[Row], offset: int, *, max_bytes: int) -> None:
    """A consumer that reads to the end gets exactly these."""
    found: list[Row] = []
    while offset < partition.high_watermark:
        answer = _fetch(broker, partition, offset, max_bytes)
        demand(answer.error_code == 0, "a fetch in range succeeds", code=answer.error_code, offset=offset)
        data = answer.records.read() if answer.records else b""
        demand(data, "there is something to read below the high watermark", partition=partition, offset=offset)
        found += rows_of(data, offset, allow_partial=True)
        headers = [header for _, header in iterate_headers(data, allow_partial=True)]
        demand(headers, "a fetch gives at least one whole batch", partition=partition, offset=offset)
        offset = headers[-1].next_offset
    demand(found == rows, "a consumer reads what a scan finds", partition=partition)


def _fetch(broker: Broker, partition: Partition, offset: int, max_bytes: int) -> FetchRequest:
    topic, index = partition.topic_partition
    asked = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[asked])]
    request = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, max_bytes=BOMB, session_epoch=-1)
    return call_now(broker, request, 12).responses[0].partitions[0]


def _check_fetch(broker: Broker, partition: Partition, rows: list[Row], random: Random) -> None:
    start, end = partition.log.log_start_offset, partition.high_watermark
    offset = random.randrange(start - 1, end + 3)
    max_bytes = random.choice([1, 100, 500, 3000, BOMB])
    answer = _fetch(broker, partition, offset, max_bytes)
    if not start <= offset <= partition.log.log_end_offset:
        demand(answer.error_code == _OUT_OF_RANGE, "a fetch out of range is told so", code=answer.error_code)
        return
    demand(answer.error_code == 0, "a fetch in range succeeds", code=answer.error_code, offset=offset)
    data = answer.records.read() if answer.records else b""
    found = rows_of(data, offset, allow_partial=True)
    expected = [row for row in rows if row.offset >= offset]
    demand(found == expected[: len(found)], "a fetch begins where it was asked to", partition=partition, offset=offset)
    demand(data or offset >= end, "there is something to read below the high watermark", partition=partition)


def _check_time(broker: Broker, partition: Partition, rows: list[Row], random: Random) -> None:
    if not rows or partition.high_watermark < partition.leader_epoch_start_offset:
        return
    timestamp = max(0, random.choice(rows).timestamp + random.choice([-1, 0, 0, 1]))
    expected = next(((row.timestamp, row.offset, row.leader_epoch) for row in rows if row.timestamp >= timestamp), None)
    found = _list_offset(broker, partition, timestamp)
    demand(found == (expected or (-1, -1, -1)), "a time is found", at=timestamp, found=found, expected=expected)


def _check_newest(broker: Broker, partition: Partition, rows: list[Row]) -> None:
    """As in Kafka there is no answer while the newest of all is above the high watermark."""
    newest = max(rows, key=lambda row: row.timestamp, default=None)
    if newest is None or newest.timestamp < 0 or partition.high_watermark < partition.leader_epoch_start_offset:
        return
    is_visible = newest.offset < partition.high_watermark
    expected = (newest.timestamp, newest.offset, newest.leader_epoch) if is_visible else (-1, -1, -1)
    found = _list_offset(broker, partition, -3)
    demand(found == expected, "the newest record is found", partition=partition, found=found, expected=expected)


def _list_offset(broker: Broker, partition: Partition, timestamp: int) -> tuple[int, int, int]:
    topic, index = partition.topic_partition
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    answer = call_now(broker, ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions[0]
    demand(answer.error_code == 0, "offsets can be listed", code=answer.error_code)
    return answer.timestamp, answer.offset, answer.leader_epoch


def check_files(disk: SimDisk, *, with_snapshots: bool) -> None:
    """After a clean stop: what Kafka's own tools would look at."""
    demand(disk.exists(f"{DATA}/.kafka_cleanshutdown"), "a clean stop leaves its mark")
    for name in disk.list(DATA):
        folder = f"{DATA}/{name}"
        if disk.is_folder(folder) and not name.endswith(("-delete", "-stray")):
            _check_folder(disk, folder)
            for each in disk.list(folder):
                if with_snapshots and each.endswith(".snapshot"):
                    ProducerStates().load(disk.read(f"{folder}/{each}"))


def _check_folder(disk: SimDisk, folder: str) -> None:
    names = disk.list(folder)
    # The end of a compaction may come while a helper thread is writing: .cleaned files are removed at the next start.
    odd = [name for name in names if name.endswith((".swap", ".tmp"))]
    demand(not odd, "no file is left half-made", folder=folder, odd=odd)
    bases = [int(name[:20]) for name in names if name.endswith(".log")]
    next_offset = bases[0]
    for base in bases:
        path = f"{folder}/{base:020d}"
        demand(base == next_offset, "segments follow on each other", folder=folder, bases=bases, ends=next_offset)
        data = disk.read(f"{path}.log")
        last = dict(iterate_headers(data))
        for header in last.values():
            demand(header.base_offset >= next_offset, "offsets grow", folder=folder, header=header)
            next_offset = header.next_offset
        if not data:
            continue
        entries = list(iter_unpack(">ii", disk.read(f"{path}.index")))
        demand(entries == sorted(set(entries)), "index entries grow", path=path, entries=entries)
        for relative, position in entries:
            demand(position in last and last[position].last_offset == base + relative, "an index is right", path=path)
        times = list(iter_unpack(">qi", disk.read(f"{path}.timeindex")))
        demand(times == sorted(set(times)), "time index entries grow", path=path, entries=times)
        by_offset = {header.last_offset: header for header in last.values()}
        for timestamp, relative in times:
            demand(by_offset[base + relative].max_timestamp == timestamp, "a time index is right", path=path)
        newest = max(header.max_timestamp for header in last.values())
        demand(newest < 0 or times[-1][0] == newest, "a time index ends with the largest", path=path)
