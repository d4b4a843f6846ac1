"""The history checker: what clients were told and have read, against what Kafka's model promises.

Pure: no clock, no event loop, nothing of the broker. A history is JSON lines (docs/verify.md), of any Kafka.
"""

from tailrace.verify.events import HistoryError
from tailrace.verify.recorder import Recorder
from tailrace.verify.report import Report, verify

__all__ = ["HistoryError", "Recorder", "Report", "verify"]
