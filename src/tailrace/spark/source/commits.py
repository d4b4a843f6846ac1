"""Offsets of finished micro-batches, committed to a consumer group: for lag to be seen where people look for it.

Nothing is ever read from there: a query goes on from its checkpoint. So a commit that fails is told and made good by
the next one, except for the very first, which finds out whether the group can be used at all.
"""

from __future__ import annotations

import logging

from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.source.offsets import Offsets

logger = logging.getLogger(__name__)

# The next micro-batch waits for it, and should not wait long.
_COMMIT_TIMEOUT_MS = 5000
_REFUSALS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID)


class GroupCommits:
    def __init__(self, blocking: BlockingCluster, group_id: str) -> None:
        self._blocking = blocking
        self._group_id = group_id
        self._committed: Offsets = {}

    def commit(self, offsets: Offsets) -> None:
        if not offsets or offsets == self._committed:
            return
        try:
            self._blocking.run(self._commit(offsets))
        except KafkaError as error:
            if error.code in _REFUSALS and not self._committed:
                raise OptionError(
                    f"offsets cannot be committed to group {self._group_id} (option groupId): {error}; a group that "
                    "has members of its own cannot be shared: choose another name"
                ) from None
            logger.warning(
                "offsets were not committed to group %s, the next batch will do it: %s", self._group_id, error
            )
            return
        self._committed = dict(offsets)

    async def _commit(self, offsets: Offsets) -> None:
        coordinator = Coordinator(self._blocking.cluster, self._group_id)
        try:
            await GroupOffsets(coordinator, timeout_ms=_COMMIT_TIMEOUT_MS).commit(offsets)
        finally:
            coordinator.close()
