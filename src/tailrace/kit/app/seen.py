"""Events that were taken before, for sources that repeat them: each event is handled once, by an id that it carries.

The ids of a partition stand in the same partition of a topic of their own, `GROUP.TOPIC.seen`. They are written in the
transaction that commits the offset, and read before the first record of a partition is handled. So the copies of an
event must come in one partition, as those with one key do. An event counts as taken once it is done with, by a retry
topic or the dead letters too: a copy of it that comes later is passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.kit.app.work import Outgoing
from tailrace.kit.consumer import Consumer
from tailrace.kit.messages import Message
from tailrace.kit.options import Options
from tailrace.kit.retries.plan import SettingError, parse_duration_ms
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Clock

_log = logging.getLogger("tailrace.app")

_POLL_S = 0.5
_RECORDS = 5000


@dataclass(frozen=True)
class Deduplicate:
    """`by` gives the id of an event, or None for one that has none. Copies that come later than `within` are taken for
    new ones; so are those of the oldest events of a partition, if there are more than `ids_max`."""

    by: Callable[[Message], bytes | str | None]
    within: str = "1d"
    ids_max: int = 1_000_000
    within_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "within_ms", parse_duration_ms(self.within))
        if self.ids_max < 1:
            raise SettingError("ids_max of Deduplicate is 1 or more")

    def id_of(self, message: Message) -> bytes | None:
        found = self.by(message)
        return found.encode() if isinstance(found, str) else found


class Seen:
    """The ids of one partition. Pure."""

    def __init__(self, *, within_ms: int, ids_max: int) -> None:
        self._within_ms = within_ms
        self._ids_max = ids_max
        self._ids: dict[bytes, int] = {}  # with the time, which ascends but for jumps of clocks
        self.forgotten = 0  # before their time

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, event_id: bytes, now_ms: int) -> bool:
        """Whether it is new. It is not any more."""
        self._forget(now_ms - self._within_ms)
        if event_id in self._ids:
            return False
        self._ids[event_id] = now_ms
        if len(self._ids) > self._ids_max:
            self._ids.pop(next(iter(self._ids)))
            self.forgotten += 1
        return True

    def _forget(self, before_ms: int) -> None:
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest] >= before_ms:
                return
            del self._ids[oldest]


class SeenTopic:
    def __init__(self, deduplicate: Deduplicate, topic: str, options: Options, clock: Clock) -> None:
        self.deduplicate = deduplicate
        self.topic = topic
        self._options = options
        self._clock = clock

    @property
    def config(self) -> dict[str, str]:
        return {"retention.ms": str(self.deduplicate.within_ms), "cleanup.policy": "delete"}

    def record(self, partition: int, event_id: bytes) -> Outgoing:
        return Outgoing(self.topic, b"", event_id, partition=partition)

    async def restore(self, partition: TopicPartition) -> Seen:
        """All that is committed. It waits for transactions that are still open: what they will turn out to have written
        may belong to offsets that count already."""
        chosen = self.deduplicate
        seen = Seen(within_ms=chosen.within_ms, ids_max=chosen.ids_max)
        place = TopicPartition(self.topic, partition.partition)
        since = self._clock.wall_ms() - chosen.within_ms
        async with Consumer({**self._options, "isolation.level": "read_uncommitted"}) as looking:
            (end,) = (await looking.end_offsets([place])).values()
            (start,) = (await looking.offsets_for_time([place], max(0, since))).values()
        async with Consumer({**self._options, "isolation.level": "read_committed"}) as reader:
            await reader.assign({place: start})
            while reader.position(place) < end:
                for message in await reader.poll(_POLL_S, _RECORDS):
                    seen.take(message.raw_key or b"", message.timestamp)
        if seen.forgotten:
            _log.warning("%s has more than ids_max=%d ids: the oldest are forgotten", place, chosen.ids_max)
        return seen
