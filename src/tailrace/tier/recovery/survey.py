"""Reads of a bucket all that a recovery needs, and writes the marker that says that it has taken place.

Nothing of the data is read but the footer of each partition's last segment, for what was known of producers there. The
objects are looked for by a listing, and what it lacks one by one: a late listing makes nothing look lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from tailrace.model.ids import Uuid
from tailrace.model.ports import NoObjectError, StoreRefusalError
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.marker import MARKER_MAX_BYTES, Claim, Marker, read_marker, write_marker
from tailrace.tier.format.names import MARKER_NAME, partition_folder
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.reading.bucket import Bucket
from tailrace.tier.reading.segments import SegmentObjects
from tailrace.tier.recovery.plan import (
    PartitionPlan,
    RecoveryError,
    RecoveryPlan,
    decide_partition,
    decide_recovery,
)

# Written and read again: another recovery that begins at the same time would be seen.
_SETTLE_SECONDS = 2.0
_TRIES = 5


async def survey(
    bucket: Bucket, segments: SegmentObjects, *, wanted: Collection[str] = (), accepts_loss: bool = False
) -> RecoveryPlan:
    """Raises RecoveryError for what somebody has to decide, DamagedObjectError, StoreError."""
    try:
        manifests = [each for topic in wanted or ("",) for each in await bucket.manifests(topic)]
    except DamagedObjectError as error:
        raise RecoveryError(
            f"{error}. There is no older one: bring it back (a bucket with versions has it), or leave its topic out by "
            "naming all others with --topic"
        ) from None
    export = await bucket.export()
    if bucket.damaged and not accepts_loss:
        raise RecoveryError(
            f"{', '.join(bucket.damaged[:3])}: damaged. Bring it back (a bucket with versions has it), or go by what "
            "is older with --accept-loss: what came after that is lost"
        )
    found = await asyncio.gather(*(_survey_one(segments, each, accepts_loss=accepts_loss) for each in manifests))
    plans = {each.owner: each for each in found}
    plan = decide_recovery(bucket.marker.cluster_id, manifests, plans, export, wanted=wanted)
    unknown = sorted(set(wanted) - {topic.name for topic in plan.topics})
    if unknown:
        raise RecoveryError(f"the tier has nothing of a topic {unknown[0]}; see all of them with `tailrace tier list`")
    return plan


async def _survey_one(segments: SegmentObjects, manifest: Manifest, *, accepts_loss: bool) -> PartitionPlan:
    missing = await _find_missing(segments, manifest)
    while True:
        plan = decide_partition(manifest, missing, accepts_loss=accepts_loss)
        if plan.last is None:
            return plan
        try:
            footer = await segments.footer(plan.owner, plan.last.segment)
        except NoObjectError:
            # The listing has told of one that is gone.
            missing = {*missing, plan.last.segment.segment_id}
            continue
        return replace(plan, producers=footer.producers)


async def _find_missing(segments: SegmentObjects, manifest: Manifest) -> set[Uuid]:
    folder = partition_folder(manifest.cluster_id, manifest.owner)
    listed = {each.name for each in await segments.store.list(folder)} if manifest.segments else set()
    missing = set()
    for segment in manifest.segments:
        name = segments.name(manifest.owner, segment.base_offset, segment.segment_id)
        if name in listed:
            continue
        try:
            await segments.store.head(name)
        except NoObjectError:
            missing.add(segment.segment_id)
    return missing


async def take_over(bucket: Bucket, recovery: str) -> Claim:
    """From here on brokers of the generation before copy and delete nothing, once they have looked. RecoveryError if
    another recovery has done it meanwhile; StoreError."""
    claim = Claim(bucket.marker.generation + 1, recovery)
    if await _read(bucket) != bucket.marker:
        raise RecoveryError(_OVERTAKEN)
    for _ in range(_TRIES):
        marker = Marker(bucket.marker.cluster_id, *claim.rank)
        await bucket.store.put_bytes(MARKER_NAME, write_marker(marker))
        await asyncio.sleep(_SETTLE_SECONDS)
        found = await _read(bucket)
        if found.rank >= claim.rank:
            break  # Else it is of a recovery that was given up, whose put came late.
    if found != marker:
        raise RecoveryError(_OVERTAKEN)
    return claim


_OVERTAKEN = (
    "another recovery of this bucket has begun meanwhile: only one of them may have it. Let it finish, or end it and "
    "run this one again"
)


async def _read(bucket: Bucket) -> Marker:
    try:
        return read_marker(await bucket.store.get_whole(MARKER_NAME, MARKER_MAX_BYTES))
    except NoObjectError:
        raise StoreRefusalError(f"{MARKER_NAME} is not there any more: somebody empties the bucket") from None
