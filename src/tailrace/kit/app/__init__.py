"""Applications: handlers of messages, their retries and dead letters."""

from tailrace.kit.app.app import App
from tailrace.kit.app.handling import HandlerStopError
from tailrace.kit.app.seen import Deduplicate
from tailrace.kit.app.subscription import Limits
from tailrace.kit.app.topics import TopicMissingError
from tailrace.kit.retries.plan import Reject, Retries, SettingError

__all__ = ["App", "Deduplicate", "HandlerStopError", "Limits", "Reject", "Retries", "SettingError", "TopicMissingError"]
