"""From settings to the store of this cluster: the address, the extra it needs, the marker that says whose it is.

    first start   what cannot work ends it: an unknown scheme, a missing extra, a refused key, no bucket, another
                  cluster's marker. So does `format`.
    later         a broker that has data starts in any case; until the store is known to be this cluster's nothing is
                  copied or deleted, and log and health say why
    silence       a store that cannot be reached never stops a start

The marker is written by whoever misses it. Stores do not promise that one of two writers wins, so it is read again
after that; it guards against a wrong address, not against two clusters that begin in the same second.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import (
    Bytes,
    NoObjectError,
    ObjectFacts,
    Objects,
    StoreAwayError,
    StoreLimits,
    StoreRefusalError,
)
from tailrace.tier.format.names import MARKER_NAME

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import ObjectStores
    from tailrace.tier.store.guard import GuardedObjects

_MARKER_MAX_BYTES = 10_000
# Written and read again: what came between would be seen.
_SETTLE_SECONDS = 0.2


async def open_store(stores: ObjectStores | None, config: BrokerConfig) -> Objects:
    """KafkaError INVALID_CONFIG for an address or settings that cannot be used. Asks the store nothing."""
    url = config.remote_log_storage_url
    assert url is not None, "the settings were checked"
    if stores is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "This node has no way to object stores.")
    limits = StoreLimits(request_timeout_ms=config.remote_log_storage_timeout_ms)
    return await stores.open(url, dict(config.store_settings), limits)


async def check_marker(store: GuardedObjects, cluster_id: str) -> None:
    """Returns once the store is known to be this cluster's. StoreRefusalError if it is another's; StoreError."""
    try:
        await _read_marker(store, cluster_id)
    except NoObjectError:
        content = json.dumps({"version": 1, "cluster": cluster_id}) + "\n"
        await store.put_bytes(MARKER_NAME, content.encode())
        await asyncio.sleep(_SETTLE_SECONDS)
        await _read_marker(store, cluster_id)


async def _read_marker(store: GuardedObjects, cluster_id: str) -> None:
    data = await store.get_whole(MARKER_NAME, _MARKER_MAX_BYTES)
    try:
        found = json.loads(data)["cluster"]
    except (ValueError, KeyError, TypeError):
        raise StoreRefusalError(
            f"{MARKER_NAME} of the store is damaged: it does not say whose store it is. If it is that of cluster "
            f'{cluster_id}, write {{"version": 1, "cluster": "{cluster_id}"}} into it.'
        ) from None
    if found != cluster_id:
        raise StoreRefusalError(
            f"the store belongs to cluster {found}, this is cluster {cluster_id}: give it a bucket or a prefix of its "
            "own (remote.log.storage.url)."
        )


class NoStore:
    """In the place of a store that cannot be used: as Objects that refuse everything, and say why."""

    def __init__(self, cause: str) -> None:
        self._cause = cause

    async def put(self, name: str, parts: AsyncIterator[Bytes], size_bytes: int) -> None:  # noqa: ARG002
        raise StoreRefusalError(self._cause)

    async def get(self, name: str, start: int, end: int) -> Bytes:  # noqa: ARG002
        raise StoreRefusalError(self._cause)

    async def head(self, name: str) -> ObjectFacts:  # noqa: ARG002
        raise StoreRefusalError(self._cause)

    async def list(self, prefix: str) -> AsyncIterator[Sequence[ObjectFacts]]:  # noqa: ARG002
        raise StoreRefusalError(self._cause)
        yield ()

    async def delete(self, names: Sequence[str]) -> None:  # noqa: ARG002
        raise StoreRefusalError(self._cause)


async def check_at_first_start(store: GuardedObjects, cluster_id: str) -> None:
    """KafkaError INVALID_CONFIG if the store says no; silence is no reason not to start."""
    try:
        async with asyncio.timeout(_FIRST_CHECK_SECONDS):
            await check_marker(store, cluster_id)
    except (StoreAwayError, TimeoutError):
        return
    except StoreRefusalError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The store cannot be used: {error}") from error


# A store that works answers within a second.
_FIRST_CHECK_SECONDS = 5.0
