"""A scripted broker that tells offsets."""

from tailrace.client.offsets import EARLIEST, LATEST, NO_SUCH_RECORD
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse
from tests.unit.client.peer import Peer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Leader(Peer):
    """Topic `t` with two partitions of offsets 10 to 99, where a record's time is its offset. `ends` are told in turn,
    the last one for ever."""

    def __init__(self, ends: list[int] | None = None) -> None:
        super().__init__({ListOffsetsRequest: self._list_offsets}, partitions=2)
        self.ends = ends or [100]
        self.errors: list[ErrorCode] = []

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        for asked in topic.partitions:
            time = asked.timestamp
            offset = {EARLIEST: 10, LATEST: end}.get(time, max(10, time) if time < 100 else NO_SUCH_RECORD)
            answer.partitions.append(
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=error, offset=offset
                )
            )
        return ListOffsetsResponse(topics=[answer])
