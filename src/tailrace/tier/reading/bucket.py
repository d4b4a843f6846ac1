"""What a store holds, found without a broker: by the marker, and by the newest manifest of each partition.

A listing may lack what is new and have what is gone. So what is found may be some minutes old, and a manifest that was
listed may have been removed: then there is a newer one, and the listing is asked for again. Nothing else is ever
concluded from a listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ports import NoObjectError, ObjectFacts, StoreAwayError, StoreRefusalError
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.marker import MARKER_MAX_BYTES, Marker, read_marker
from tailrace.tier.format.names import (
    MARKER_NAME,
    ManifestName,
    TieredPartition,
    export_folder,
    manifest_folder,
    parse_export_name,
    parse_name,
)
from tailrace.tier.metadata.export import Export, read_export
from tailrace.tier.metadata.manifest import Manifest, read_manifest
from tailrace.tier.store.guard import GuardedObjects

events_log = events.logger("tier")

# How often a listing is asked for that names manifests which are not there.
_LISTINGS_MAX = 5
_PAUSE_S = 1.0
# Of one that is larger, something is wrong: a million segments have 120 MB.
_STATEMENT_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Bucket:
    """A store whose marker was read."""

    store: GuardedObjects
    marker: Marker
    damaged: list[str] = field(default_factory=list)  # What was passed over for something older.

    @classmethod
    async def open(cls, store: GuardedObjects) -> Bucket:
        """Raises StoreError, with a remedy where there is one."""
        try:
            data = await store.get_whole(MARKER_NAME, MARKER_MAX_BYTES)
        except NoObjectError:
            # A question for one object does not tell that there is no bucket at all.
            await store.list(MARKER_NAME)
            raise StoreRefusalError(
                f"there is no {MARKER_NAME} in it: no cluster keeps its tier there. Give the address that the brokers "
                "have as remote.log.storage.url, with its prefix"
            ) from None
        try:
            return cls(store, read_marker(data))
        except StorageError as error:
            raise StoreRefusalError(str(error)) from None

    async def manifests(self, topic: str = "") -> list[Manifest]:
        """The newest of each partition, in order; of one topic, or of all. If a topic was deleted and made anew under
        its name, of both for a while. Raises StoreError or DamagedObjectError."""
        found: dict[TieredPartition, Manifest] = {}
        for attempt in range(_LISTINGS_MAX):
            if attempt:
                await asyncio.sleep(_PAUSE_S)
            names = await self._names(topic)
            missing = [owner for owner in names if owner not in found]
            read = await asyncio.gather(*(self._newest(names[owner]) for owner in missing))
            found |= {manifest.owner: manifest for manifest in read if manifest is not None}
            if all(manifest is not None for manifest in read):
                break
        else:
            raise StoreAwayError(f"the listing of manifests names some that are not there, {_LISTINGS_MAX} times")
        return sorted(found.values(), key=lambda each: (each.topic, each.owner))

    async def _names(self, topic: str) -> dict[TieredPartition, list[ObjectFacts]]:
        """Newest first."""
        versions: dict[TieredPartition, list[tuple[ManifestName, ObjectFacts]]] = {}
        for facts in await self.store.list(manifest_folder(self.marker.cluster_id, topic)):
            name = parse_name(self.marker.cluster_id, facts.name)
            if isinstance(name, ManifestName):
                versions.setdefault(name.owner, []).append((name, facts))
        return {
            owner: [facts for _, facts in sorted(each, key=lambda pair: pair[0].version, reverse=True)]
            for owner, each in versions.items()
        }

    async def _newest(self, versions: Sequence[ObjectFacts]) -> Manifest | None:
        """None if it has been removed: then there is a newer one. One that is damaged is passed over if there is an
        older one, which is true, too."""
        damage: DamagedObjectError | None = None
        for facts in versions:
            try:
                return await self.read(facts)
            except NoObjectError:
                return None
            except DamagedObjectError as error:
                events_log.error("a manifest is damaged, an older one is read instead", cause=error)
                self.damaged.append(facts.name)
                damage = error
        if damage is not None:
            raise damage
        return None

    async def export(self) -> Export | None:
        """The newest that is whole; None if there is none. Raises StoreError."""
        cluster_id = self.marker.cluster_id
        listed = await self.store.list(export_folder(cluster_id))
        versions = [(version, facts) for facts in listed if (version := parse_export_name(cluster_id, facts.name))]
        for _, facts in sorted(versions, key=lambda each: each[0], reverse=True):
            try:
                return read_export(facts.name, await self._whole(facts))
            except NoObjectError:
                continue  # An old one that was removed: the listing is late.
            except DamagedObjectError as error:
                events_log.error("an export is damaged, an older one is read instead", cause=error)
                self.damaged.append(facts.name)
        return None

    async def read(self, facts: ObjectFacts) -> Manifest:
        """NoObjectError or DamagedObjectError."""
        return read_manifest(facts.name, await self._whole(facts))

    async def _whole(self, facts: ObjectFacts) -> bytes:
        if not 0 < facts.size_bytes <= _STATEMENT_MAX_BYTES:
            raise DamagedObjectError(f"{facts.name} is damaged: it has {facts.size_bytes} bytes")
        return bytes(await self.store.get(facts.name, 0, facts.size_bytes))


def newest_of_each_name(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Of topics that had the same name one after the other only the last: that whose manifests were written last."""
    last: dict[str, Manifest] = {}
    for manifest in manifests:
        if manifest.topic not in last or manifest.written_ms > last[manifest.topic].written_ms:
            last[manifest.topic] = manifest
    return [each for each in manifests if each.owner.topic_id == last[each.topic].owner.topic_id]
