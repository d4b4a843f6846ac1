"""Whose store it is: `cluster.json`, which readers ask first and brokers compare with themselves. Pure.

    {"version": 1, "cluster": "<cluster id>", "generation": 0, "recovery": ""}

A recovery from the store raises the generation, and names itself, by its time first. Of two markers the greater counts,
by generation and then by name: a broker that sees a greater one than its own stops copying and deleting, and whoever
finds a smaller one, of a put that came late, writes his own again. Nobody can be fenced by it alone, for stores promise
no comparison.

    claim    what a cluster knows of itself, in its metadata: the setting `remote.log.storage.recovery`
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tailrace.model.errors import StorageError
from tailrace.tier.format.names import MARKER_NAME

_VERSION = 1
# More than any marker has: what is larger is something else.
MARKER_MAX_BYTES = 64 << 10


class Marker(NamedTuple):
    cluster_id: str
    generation: int = 0
    recovery: str = ""  # Of the recovery that began this generation; empty before the first.

    @property
    def rank(self) -> tuple[int, str]:
        return self.generation, self.recovery


class Claim(NamedTuple):
    """What a cluster says of itself."""

    generation: int = 0
    recovery: str = ""
    may_write: bool = True

    @property
    def rank(self) -> tuple[int, str]:
        return self.generation, self.recovery

    def __str__(self) -> str:
        if not self.may_write:
            return READ_ONLY
        return f"{self.generation}-{self.recovery}" if self.recovery else ""


READ_ONLY = "read-only"


def write_marker(marker: Marker) -> bytes:
    fields = {"cluster": marker.cluster_id, "generation": marker.generation, "recovery": marker.recovery}
    return json.dumps({"version": _VERSION, **fields}).encode()


def read_claim(text: str) -> Claim:
    """The setting was checked to be what a recovery writes."""
    if text in ("", READ_ONLY):
        return Claim(may_write=not text)
    generation, _, recovery = text.partition("-")
    return Claim(int(generation), recovery)


def read_marker(data: bytes) -> Marker:
    """StorageError if it is none."""
    try:
        fields = json.loads(data)
        version = fields["version"]
        marker = Marker(fields["cluster"], fields["generation"], fields.get("recovery", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(f"{MARKER_NAME} does not say whose store this is: another program has written it") from None
    if version != _VERSION:
        raise StorageError(f"{MARKER_NAME} has version {version} of the format: this program knows {_VERSION} alone")
    if not isinstance(marker.cluster_id, str) or not marker.cluster_id or "/" in marker.cluster_id:
        raise StorageError(f"{MARKER_NAME} names no cluster")
    if type(marker.generation) is not int or marker.generation < 0:
        raise StorageError(f"{MARKER_NAME} has {marker.generation!r} as its generation")
    if not isinstance(marker.recovery, str):
        raise StorageError(f"{MARKER_NAME} has {marker.recovery!r} as its recovery")
    return marker
