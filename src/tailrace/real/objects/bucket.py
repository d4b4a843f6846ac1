"""A store for those who read it without a broker: commands, Spark's driver and tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from tailrace.model.ports import Ports, StoreLimits, StoreRefusalError
from tailrace.real.ports import real_ports
from tailrace.tier.reading.bucket import Bucket
from tailrace.tier.reading.segments import SegmentObjects
from tailrace.tier.store.guard import GuardedObjects, GuardLimits

# Nobody waits behind a command or a task: it tries for longer than a broker does.
_LIMITS = GuardLimits(call_timeout_ms=60_000.0, tries=6)


@dataclass(frozen=True, slots=True)
class OpenBucket:
    bucket: Bucket
    segments: SegmentObjects
    ports: Ports

    def close(self) -> None:
        self.ports.background.close()


async def open_bucket(url: str, options: Mapping[str, str]) -> OpenBucket:
    """Reads the marker. Raises KafkaError INVALID_CONFIG for an address or option that cannot be, and StoreError."""
    if url.startswith("file:///") and not await asyncio.to_thread(os.path.isdir, unquote(url.removeprefix("file://"))):
        # The store would make it.
        raise StoreRefusalError(f"{url}: there is no such folder, or nobody may read it here: correct the address")
    ports = real_ports()
    assert ports.objects is not None
    objects = await ports.objects.open(url, options, StoreLimits(request_timeout_ms=60_000))
    store = GuardedObjects(objects, ports.clock, ports.random, _LIMITS)
    bucket = await Bucket.open(store)
    return OpenBucket(bucket, SegmentObjects(store, ports.background, bucket.marker.cluster_id), ports)
