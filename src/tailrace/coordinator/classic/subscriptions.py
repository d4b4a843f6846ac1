"""The topics that a consumer's member metadata names: the one thing that a coordinator reads in it, so that offsets of
topics that are subscribed to do not expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.model.errors import ProtocolError
from tailrace.wire.apis.stored_records import ConsumerProtocolSubscription
from tailrace.wire.compile import decode

# Every version begins with what version 0 has, behind an int16 that tells the version.
_VERSION = 0
_VERSION_BYTES = 2


def read_subscribed_topics(metadata: bytes) -> Sequence[str] | None:
    """None if it cannot be read: clients may write what they like."""
    if len(metadata) < _VERSION_BYTES:
        return None
    try:
        return decode(ConsumerProtocolSubscription, _VERSION, metadata, _VERSION_BYTES).topics
    except ProtocolError:
        return None
