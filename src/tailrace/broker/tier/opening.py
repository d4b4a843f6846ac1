"""From settings to the store of this cluster: the address, the extra it needs, the marker that says whose it is.

    first start   what cannot work ends it: an unknown scheme, a missing extra, a refused key, no bucket, another
                  cluster's marker. So does `format`.
    later         a broker that has data starts in any case; until the store is known to be this cluster's nothing is
                  copied or deleted, and log and health say why
    silence       a store that cannot be reached never stops a start

The marker is written by whoever misses it, unless it knows of copies: then this is not where they lie, and what would
be copied here could not be found at the right address. Stores do not promise that one of two writers wins, so it is
read again after that; it guards against a wrong address, not against two clusters that begin in the same second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import (
    Bytes,
    NoObjectError,
    ObjectFacts,
    Objects,
    StoreAwayError,
    StoreLimits,
    StoreRefusalError,
)
from tailrace.tier.format.marker import MARKER_MAX_BYTES, Claim, Marker, read_marker, write_marker
from tailrace.tier.format.names import MARKER_NAME
from tailrace.tier.store.guard import GuardedObjects, GuardLimits

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import ObjectStores, Ports

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


async def check_marker(store: GuardedObjects, cluster_id: str, claim: Claim, *, has_copies: bool | None) -> None:
    """Returns once the store is known to be this cluster's. StoreRefusalError if it is another's, or if a recovery has
    taken it over that is not the one of `claim`; StoreError. `has_copies`: whether this cluster is known to have copied
    segments; None as long as that is not known."""
    if not claim.may_write:
        raise StoreRefusalError(
            "this cluster was recovered from the store to read it: nothing is copied there or deleted "
            "(remote.log.storage.recovery)"
        )
    try:
        found = await _read_marker(store, cluster_id)
    except NoObjectError:
        if has_copies is None:
            raise StoreAwayError(f"it has no {MARKER_NAME}, and it is not known yet what was copied") from None
        if has_copies:
            raise StoreRefusalError(
                f"the store has no {MARKER_NAME}, and this cluster has copied segments: correct "
                "remote.log.storage.url, or bring back what was there. Nothing is copied or deleted until then. Where "
                f"that file alone was lost, put it back: {write_marker(Marker(cluster_id, *claim.rank)).decode()}"
            ) from None
        found = await _write_marker(store, cluster_id, claim)
    if found.rank < claim.rank:
        # Of a recovery that was given up, whose put came late.
        found = await _write_marker(store, cluster_id, claim)
    if found.rank != claim.rank:
        raise StoreRefusalError(
            f"the store was taken over by a recovery: it has generation {found.generation} {found.recovery}, this "
            f"cluster has {claim.generation} {claim.recovery}. It copies and deletes nothing any more; stop it if "
            "another one has taken its place"
        )


async def _write_marker(store: GuardedObjects, cluster_id: str, claim: Claim) -> Marker:
    await store.put_bytes(MARKER_NAME, write_marker(Marker(cluster_id, *claim.rank)))
    await asyncio.sleep(_SETTLE_SECONDS)
    return await _read_marker(store, cluster_id)


async def _read_marker(store: GuardedObjects, cluster_id: str) -> Marker:
    data = await store.get_whole(MARKER_NAME, MARKER_MAX_BYTES)
    try:
        found = read_marker(data)
    except StorageError as error:
        raise StoreRefusalError(
            f"{error}. Give this cluster a bucket or a prefix of its own (remote.log.storage.url)"
        ) from None
    if found.cluster_id != cluster_id:
        raise StoreRefusalError(
            f"the store belongs to cluster {found.cluster_id}, this is cluster {cluster_id}: give it a bucket or a "
            "prefix of its own (remote.log.storage.url)"
        )
    return found


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


async def check_settings(ports: Ports, config: BrokerConfig, cluster_id: str) -> None:
    """As a first start does, without a broker."""
    objects = await open_store(ports.objects, config)
    limits = GuardLimits(call_timeout_ms=config.remote_log_storage_timeout_ms, tries=1)
    await check_at_first_start(GuardedObjects(objects, ports.clock, ports.random, limits), cluster_id)


async def check_at_first_start(store: GuardedObjects, cluster_id: str) -> None:
    """KafkaError INVALID_CONFIG if the store says no; silence is no reason not to start."""
    try:
        async with asyncio.timeout(_FIRST_CHECK_SECONDS):
            try:
                await _read_marker(store, cluster_id)
            except NoObjectError:
                await _write_marker(store, cluster_id, Claim())
    except (StoreAwayError, TimeoutError):
        return
    except StoreRefusalError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The store cannot be used: {error}") from error


# A store that works answers within a second.
_FIRST_CHECK_SECONDS = 5.0
