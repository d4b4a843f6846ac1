"""Outbox: records that a database transaction decides on, written to topics once each."""

try:
    from tailrace.kit.outbox.relay import Relay, RelayOptions
    from tailrace.kit.outbox.table import enqueue, outbox_table
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the outbox needs {error.name}, which is not installed: pip install 'tailrace[outbox]'", name=error.name
    ) from None

__all__ = ["Relay", "RelayOptions", "enqueue", "outbox_table"]
