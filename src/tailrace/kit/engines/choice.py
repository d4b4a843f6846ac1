"""Which engine works for a producer or a consumer: our own client, or librdkafka where the option `engine` says so."""

from __future__ import annotations

from tailrace.kit.engines.port import ConsumerEngine, ProducerEngine
from tailrace.kit.options import ParsedOptions
from tailrace.model.settings import invalid


def producer_engine(options: ParsedOptions) -> ProducerEngine:
    if options.config.engine == "librdkafka":
        _check_installed()
        from tailrace.kit.engines.librdkafka_producer import LibrdkafkaProducer

        return LibrdkafkaProducer(options)
    from tailrace.kit.engines.tailrace_producer import TailraceProducer

    return TailraceProducer(options)


def consumer_engine(options: ParsedOptions) -> ConsumerEngine:
    if options.config.engine == "librdkafka":
        _check_installed()
        from tailrace.kit.engines.librdkafka_consumer import LibrdkafkaConsumer

        return LibrdkafkaConsumer(options)
    from tailrace.kit.engines.tailrace_consumer import TailraceConsumer

    return TailraceConsumer(options)


def _check_installed() -> None:
    try:
        import confluent_kafka  # noqa: F401 - only whether it is there
    except ImportError:
        raise invalid("engine", "librdkafka", "It needs confluent-kafka: pip install 'tailrace[librdkafka]'") from None
