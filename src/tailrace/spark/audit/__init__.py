"""The audit: compares two topics, a topic and a table, or a topic and a recorded history, as Spark jobs that scale.

report = run_audit(Audit(TopicSide("orders", bootstrap), TableSide("/data/orders", by=("order_id",))))
"""

from tailrace.spark.audit.declaration import KINDS, Audit, HistorySide, TableSide, TopicSide
from tailrace.spark.audit.errors import AuditError
from tailrace.spark.audit.page import page
from tailrace.spark.audit.report import Report
from tailrace.spark.audit.run import run_audit

__all__ = ["KINDS", "Audit", "AuditError", "HistorySide", "Report", "TableSide", "TopicSide", "page", "run_audit"]
