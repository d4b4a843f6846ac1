"""Pipelines: from topics to tables and topics, declared in a file or in a few lines of Python.

from tailrace.spark.pipelines import Pipeline, TableSink, TopicSource, run

run(Pipeline("orders", "127.0.0.1:9092", {"orders": TopicSource("orders")}, TableSink("/data/orders"), "/data/cp"))
"""

from tailrace.spark.pipelines.declaration import (
    DeclarationError,
    Pipeline,
    TableSink,
    TopicSink,
    TopicSource,
    Transform,
)
from tailrace.spark.pipelines.document import PipelineFileError
from tailrace.spark.pipelines.parse import load
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary
from tailrace.spark.pipelines.run import run

__all__ = [
    "BatchProgress",
    "DeclarationError",
    "Pipeline",
    "PipelineFileError",
    "RunSummary",
    "TableSink",
    "TopicSink",
    "TopicSource",
    "Transform",
    "load",
    "run",
]
