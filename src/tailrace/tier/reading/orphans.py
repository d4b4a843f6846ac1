"""Objects that nothing names: found by those who have no broker, and judged with care.

A copy becomes visible after its object is there, and a manifest tells of it later. So an object that the newest
manifest does not name is an orphan only if that manifest was written `delay_ms` after it: then its leader has given up
on it, as a leader would (`keeping.removal`). Of a younger one nothing can be said yet. Where a partition has no
manifest at all, its topic was deleted, or its leader could not write one: that cannot be told from here.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tailrace.model.ports import ObjectFacts
from tailrace.tier.format.names import ManifestName, SegmentName, TieredPartition, manifest_folder, parse_name
from tailrace.tier.keeping.manifests import decide_old
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.reading.bucket import Bucket


class Verdict(Enum):
    ORPHAN = "orphan"
    YOUNG = "young"
    NO_MANIFEST = "no manifest"
    OLD_MANIFEST = "old manifest"


class Unnamed(NamedTuple):
    facts: ObjectFacts
    owner: TieredPartition
    topic: str  # Empty where it is not known.
    verdict: Verdict


class Found(NamedTuple):
    unnamed: list[Unnamed]
    foreign: list[ObjectFacts]  # Not ours: nobody touches them.


async def find_orphans(bucket: Bucket, *, now_ms: int, delay_ms: int) -> Found:
    """`now_ms` by the store's clock, more or less. Raises StoreError or DamagedObjectError."""
    cluster_id = bucket.marker.cluster_id
    # In this order: what came between the two is younger than the manifests.
    listed = await bucket.store.list(cluster_id)
    manifests = {each.owner: each for each in await bucket.manifests()}
    written = {each.name: each for each in await bucket.store.list(manifest_folder(cluster_id))}
    named = {segment.segment_id for manifest in manifests.values() for segment in manifest.segments}
    found = Found([], [])
    versions: dict[TieredPartition, list[ObjectFacts]] = {}
    for facts in listed:
        name = parse_name(cluster_id, facts.name)
        if isinstance(name, ManifestName):
            versions.setdefault(name.owner, []).append(facts)
        elif isinstance(name, SegmentName):
            if name.segment_id not in named:
                manifest = manifests.get(name.owner)
                told = written.get(manifest.name) if manifest is not None else None
                verdict = _judge(facts, manifest, told, old_ms=now_ms - delay_ms, delay_ms=delay_ms)
                found.unnamed.append(Unnamed(facts, name.owner, manifest.topic if manifest else "", verdict))
        else:
            found.foreign.append(facts)
    for owner, each in versions.items():
        old = set(decide_old(cluster_id, each, before_ms=now_ms - delay_ms))
        topic = manifests[owner].topic if owner in manifests else ""
        found.unnamed.extend(Unnamed(facts, owner, topic, Verdict.OLD_MANIFEST) for facts in each if facts.name in old)
    found.unnamed.sort(key=lambda each: each.facts.name)
    return found


def _judge(
    facts: ObjectFacts, manifest: Manifest | None, told: ObjectFacts | None, *, old_ms: int, delay_ms: int
) -> Verdict:
    """Of one that is not named. `told` is the manifest's object; a listing may lack it."""
    if manifest is None:
        return Verdict.NO_MANIFEST if facts.modified_ms < old_ms else Verdict.YOUNG
    is_given_up = told is not None and facts.modified_ms + delay_ms < told.modified_ms
    return Verdict.ORPHAN if is_given_up else Verdict.YOUNG
