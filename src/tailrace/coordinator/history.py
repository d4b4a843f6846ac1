"""Why did it rebalance? The last rebalances of each group, with their causes.

Kept in memory by the coordinator alone, and bounded: a new coordinator begins anew. Groups that have not rebalanced for
longest are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

# Characters. Clients choose these texts, and may choose them as long as a string on the wire.
_TEXT_MAX = 500


class Cause(StrEnum):
    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member rejoined"  # With new metadata, or a static member that came back.
    MEMBER_LEFT = "member left"
    MEMBER_TIMED_OUT = "member timed out"
    MEMBER_REMOVED = "member removed"  # By an administrator.
    SUBSCRIPTION_CHANGED = "subscription changed"
    PARTITIONS_CHANGED = "partitions changed"
    PROTOCOL_CHANGED = "protocol changed"  # From classic to consumer, or back.
    COORDINATOR_CHANGED = "coordinator changed"
    RECORD_TOO_LARGE = "record too large"  # What the members have to say to each other could not be stored.


class Rebalance(NamedTuple):
    at_ms: int
    cause: Cause
    # A sentence about it: who, after how long, which topics.
    detail: str
    # The generation of a classic group, the epoch of a consumer group, that it began in.
    epoch: int
    member_id: str = ""
    client_id: str = ""


class History:
    def __init__(self, *, groups_max: int, rebalances_max: int) -> None:
        self._groups_max = groups_max
        self._rebalances_max = rebalances_max
        self._rebalances: OrderedDict[str, deque[Rebalance]] = OrderedDict()

    def note(self, group_id: str, rebalance: Rebalance) -> None:
        rebalances = self._rebalances.setdefault(group_id, deque(maxlen=self._rebalances_max))
        rebalances.append(
            rebalance._replace(
                detail=rebalance.detail[:_TEXT_MAX],
                member_id=rebalance.member_id[:_TEXT_MAX],
                client_id=rebalance.client_id[:_TEXT_MAX],
            )
        )
        self._rebalances.move_to_end(group_id)
        if len(self._rebalances) > self._groups_max:
            self._rebalances.popitem(last=False)

    def counts_since(self, at_ms: int) -> Iterator[tuple[str, int]]:
        """Of groups that have rebalanced since then: how often, the last ones first. One that forgets counts less."""
        for group_id, rebalances in reversed(self._rebalances.items()):
            count = sum(each.at_ms >= at_ms for each in rebalances)
            if not count:
                return
            yield group_id, count

    def of(self, group_id: str) -> Sequence[Rebalance]:
        """Oldest first."""
        return tuple(self._rebalances.get(group_id, ()))
