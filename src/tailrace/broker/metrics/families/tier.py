"""Remote storage: whether the store can be used, and what was copied. Told where it is enabled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import own_counter, own_gauge

if TYPE_CHECKING:
    from tailrace.broker.tier.tier import Tier
    from tailrace.model.metrics.text import Text

_ANSWERS = own_gauge("tier_store_answers", "1 while the store answers, 0 while its circuit is open.")
_OURS = own_gauge("tier_store_is_ours", "1 if this broker may copy there and delete; 0 after a recovery elsewhere.")
_SEGMENTS = own_counter("tier_copied_segments", "Segments that this broker has copied to the store.")
_BYTES = own_counter("tier_copied_bytes", "Bytes of their records.")


def pieces(tier: Tier, text: Text) -> Iterator[str]:
    yield text.write(_ANSWERS, [("", float(not tier.store.circuit.is_open))])
    yield text.write(_OURS, [("", float(tier.is_ours))])
    yield text.write(_SEGMENTS, [("", float(tier.copied_segments))])
    yield text.write(_BYTES, [("", float(tier.copied_bytes))])
