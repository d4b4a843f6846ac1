"""How Kafka's names come about: as rules for the JMX exporter make them of its MBeans, in small letters."""

from __future__ import annotations

from tailrace.model.metrics.text import Kind, Metric


def meter(mbean: str, name: str, help_text: str) -> Metric:
    """A meter `...PerSec` of Kafka: a counter that rules name `_total`, or plain ones `persec_count`."""
    base = f"{mbean}_{name}".lower()
    return Metric(base, Kind.COUNTER, help_text, plain_name=f"{base}persec_count")


def gauge(mbean: str, name: str, help_text: str) -> Metric:
    return Metric(f"{mbean}_{name}".lower(), Kind.GAUGE, help_text)


def own_counter(name: str, help_text: str) -> Metric:
    return Metric(f"tailrace_{name}", Kind.COUNTER, help_text)


def own_gauge(name: str, help_text: str) -> Metric:
    return Metric(f"tailrace_{name}", Kind.GAUGE, help_text)
