"""Applications: handlers of messages, their retries and dead letters."""

from tailrace.kit.app.app import App
from tailrace.kit.app.calling import HandlerTimeoutError
from tailrace.kit.app.handling import HandlerStopError
from tailrace.kit.app.seen import Deduplicate
from tailrace.kit.app.shares.subscription import DeliveriesSpentError
from tailrace.kit.app.status import Counts, Running, Status
from tailrace.kit.app.subscription import Limits
from tailrace.kit.app.topics import TopicMissingError
from tailrace.kit.retries.plan import Reject, Retries, SettingError

__all__ = [
    "App",
    "Counts",
    "Deduplicate",
    "DeliveriesSpentError",
    "HandlerStopError",
    "HandlerTimeoutError",
    "Limits",
    "Reject",
    "Retries",
    "Running",
    "SettingError",
    "Status",
    "TopicMissingError",
]
