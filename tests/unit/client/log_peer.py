"""A scripted broker that holds logs: batches as a test has made them, and what it answers instead of them."""

from tailrace.client.consumer import EARLIEST, LATEST
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.markers import Marker, build_marker
from tailrace.wire.records import Record, build_batch, set_base_offset

from .peer import Peer


class Broker(Peer):
    """Serves the batches of each partition, whole ones, from the one that holds the offset. `plan` holds what to do
    with the next Fetch requests instead."""

    def __init__(self, batches: dict[int, list[tuple[int, int, bytes]]]) -> None:
        super().__init__(partitions=max(batches) + 1)
        self.batches = batches  # partition -> (first offset, end offset, bytes)
        self.plan: list[ErrorCode | str] = []
        self.scripts |= {FetchRequest: self._fetch, ListOffsetsRequest: self._list_offsets}

    def _fetch(self, request: FetchRequest) -> FetchResponse | str:
        step = self.plan.pop(0) if self.plan else ErrorCode.NONE
        if isinstance(step, str):
            return step
        (topic,) = request.topics
        answer = FetchResponse.FetchableTopicResponse(topic=topic.topic)
        for asked in topic.partitions:
            held = self.batches[asked.partition]
            end = held[-1][1] if held else 0
            data = FetchResponse.PartitionData(partition_index=asked.partition, error_code=step, high_watermark=end)
            if step is ErrorCode.NONE:
                data.records = b"".join(batch for _, stop, batch in held if stop > asked.fetch_offset)
            answer.partitions.append(data)
        return FetchResponse(responses=[answer])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
        for asked in topic.partitions:
            held = self.batches[asked.partition_index]
            ends = {EARLIEST: held[0][0] if held else 0, LATEST: held[-1][1] if held else 0}
            # Any time but the two ends is after the last record here.
            answer.partitions.append(
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, offset=ends.get(asked.timestamp, -1)
                )
            )
        return ListOffsetsResponse(topics=[answer])


def batch(start: int, count: int, **options: object) -> tuple[int, int, bytes]:
    records = [Record(offset, 0, None, b"%d" % offset) for offset in range(start, start + count)]
    return start, start + count, build_batch(records, base_offset=start, **options)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> tuple[int, int, bytes]:
    built = bytearray(build_marker(Marker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0))
    set_base_offset(built, 0, offset)
    return offset, offset + 1, bytes(built)


class Transactions(Broker):
    """The transactions of producers 1 and 2 interleave: 1 aborts [0, 2) and commits [7, 9), 2 commits [2, 4)."""

    def __init__(self) -> None:
        written = [
            batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            batch(2, 2, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True),
            marker(4, 1, is_commit=False),
            marker(5, 2, is_commit=True),
            batch(6, 1),
            batch(7, 2, producer_id=1, producer_epoch=0, base_sequence=2, transactional=True),
            marker(9, 1, is_commit=True),
        ]
        super().__init__({0: written})
        self.isolation_levels: set[int] = set()

    def _fetch(self, request: FetchRequest) -> FetchResponse | str:
        answer = super()._fetch(request)
        assert isinstance(answer, FetchResponse)
        self.isolation_levels.add(request.isolation_level)
        data = answer.responses[0].partitions[0]
        data.last_stable_offset = 10
        data.high_watermark = 12
        if request.isolation_level:
            data.aborted_transactions = [FetchResponse.AbortedTransaction(producer_id=1, first_offset=0)]
        return answer
