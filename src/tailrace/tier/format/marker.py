"""Whose store it is: `cluster.json`, which readers ask first and brokers compare with themselves. Pure.

    {"version": 1, "cluster": "<cluster id>", "generation": 0}

A recovery from the store raises the generation. Nobody can be fenced by it alone, for stores promise no comparison; a
broker that sees a generation above its own stops copying and deleting.
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


def write_marker(marker: Marker) -> bytes:
    return json.dumps({"version": _VERSION, "cluster": marker.cluster_id, "generation": marker.generation}).encode()


def read_marker(data: bytes) -> Marker:
    """StorageError if it is none."""
    try:
        fields = json.loads(data)
        version, marker = fields["version"], Marker(fields["cluster"], fields["generation"])
    except (ValueError, KeyError, TypeError):
        raise StorageError(f"{MARKER_NAME} does not say whose store this is: another program has written it") from None
    if version != _VERSION:
        raise StorageError(f"{MARKER_NAME} has version {version} of the format: this program knows {_VERSION} alone")
    if not isinstance(marker.cluster_id, str) or not marker.cluster_id or "/" in marker.cluster_id:
        raise StorageError(f"{MARKER_NAME} names no cluster")
    if type(marker.generation) is not int or marker.generation < 0:
        raise StorageError(f"{MARKER_NAME} has {marker.generation!r} as its generation")
    return marker
