"""Under whose name the tasks of a worker process write: one producer id for all, and an epoch of its own for each.

A broker keeps what it knows of a producer id for a day (producer.id.expiration.ms). A stream that took a new one for
each task would leave hundreds of thousands behind. Spark uses a worker process again for the next task, one at a time,
so the id stays with the process. A new epoch starts every sequence over, and shuts out what an earlier task, which has
failed, may still have on its way. An idempotent producer raises its epoch by itself, as Kafka's own does (KIP-360).
"""

from __future__ import annotations

import os

from tailrace.client.lanes import ProducerIdentity
from tailrace.client.producer import IdempotentAuthor

_EPOCH_MAX = 2**15 - 1

# By process, since a fork must not go on with its parent's, and by cluster: a worker writes to few.
_last_used: dict[tuple[int, str], ProducerIdentity] = {}


class WorkerAuthor(IdempotentAuthor):
    """For one task."""

    async def new_identity(self) -> ProducerIdentity:
        cluster_id = self._cluster.cluster_id
        if cluster_id is None:  # Nothing tells whether this is where the last one was given.
            return await super().new_identity()
        place = os.getpid(), cluster_id
        last = _last_used.pop(place, None)
        if last is None or last.producer_epoch == _EPOCH_MAX:
            identity = await super().new_identity()
        else:
            identity = ProducerIdentity(last.producer_id, last.producer_epoch + 1)
        _last_used[place] = identity
        return identity
