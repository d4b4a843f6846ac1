"""Which engine works for a producer or a consumer."""

from __future__ import annotations

from tailrace.kit.engines.port import ConsumerEngine, ProducerEngine
from tailrace.kit.engines.tailrace_consumer import TailraceConsumer
from tailrace.kit.engines.tailrace_producer import TailraceProducer
from tailrace.kit.options import ParsedOptions


def producer_engine(options: ParsedOptions) -> ProducerEngine:
    return TailraceProducer(options)


def consumer_engine(options: ParsedOptions) -> ConsumerEngine:
    return TailraceConsumer(options)
