"""Why did it rebalance? The last rebalances of each group, with their causes.

Kept in memory by the coordinator alone, and bounded: a new coordinator begins anew. Groups that have not rebalanced for
longest are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Cause(StrEnum):
    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member rejoined"  # With new metadata, or a static member that came back.
    MEMBER_LEFT = "member left"
    MEMBER_TIMED_OUT = "member timed out"
    MEMBER_REMOVED = "member removed"  # By an administrator.
    MEMBER_FENCED = "member fenced"
    SUBSCRIPTION_CHANGED = "subscription changed"
    PARTITIONS_CHANGED = "partitions changed"
    PROTOCOL_CHANGED = "protocol changed"  # From classic to consumer, or back.
    ASSIGNOR_CHANGED = "assignor changed"
    COORDINATOR_CHANGED = "coordinator changed"


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
        rebalances.append(rebalance)
        self._rebalances.move_to_end(group_id)
        if len(self._rebalances) > self._groups_max:
            self._rebalances.popitem(last=False)

    def of(self, group_id: str) -> Sequence[Rebalance]:
        """Oldest first."""
        return tuple(self._rebalances.get(group_id, ()))
