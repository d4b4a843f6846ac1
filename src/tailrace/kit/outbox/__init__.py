"""Outbox: records that a database transaction decides on, written to topics once each."""

from tailrace.kit.outbox.relay import Relay, RelayOptions
from tailrace.kit.outbox.table import enqueue, outbox_table

__all__ = ["Relay", "RelayOptions", "enqueue", "outbox_table"]
