"""What clients have pushed of their own metrics (KIP-714), under their own names, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import own_counter, own_gauge
from tailrace.model.metrics.text import Kind, Metric, label

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_CLIENTS = own_gauge("telemetry_clients", "Clients that are asked for their metrics.")
_PUSHES = own_counter("telemetry_pushes", "Pushes that were taken.")
_REFUSED = own_counter("telemetry_refused", "Pushes that were refused.")
_SERIES = own_gauge("telemetry_series", "Series of clients that are kept.")
_LEFT_OUT = own_counter("telemetry_points_left_out", "Points for which there was no room.")
_FORWARDED = own_counter("telemetry_forwarded", "Pushes handed on by OTLP, by what became of them.")
_CHUNK = 32


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    telemetry = watched.services.telemetry
    if telemetry is None:
        return
    yield text.write(_CLIENTS, [("", len(telemetry))])
    yield text.write(_PUSHES, [("", telemetry.pushes)])
    yield text.write(_REFUSED, [("", telemetry.refused)])
    if telemetry.forwarding is not None:
        told = telemetry.forwarding
        results = (("sent", told.sent), ("failed", told.failed), ("left_out", told.left_out))
        yield text.write(_FORWARDED, [(label(result=name), count) for name, count in results])
    series = telemetry.shown()
    if series is None:
        return
    yield text.write(_SERIES, [("", series.count)])
    yield text.write(_LEFT_OUT, [("", series.left_out)])
    names: set[str] = set()
    for (name, is_counter), samples in series.by_metric().items():
        kind = Kind.COUNTER if is_counter else Kind.GAUGE
        # Clients choose names: one may end as counters do, and two may have become the same.
        unique = f"client_{name}".removesuffix("_total")
        while unique in names:
            unique += "_"
        names.add(unique)
        metric = Metric(unique, kind, "Pushed by clients.")
        head, sample_name = text.begin(metric)
        yield head
        for start in range(0, len(samples), _CHUNK):
            yield "".join(
                f"{sample_name}{{{label(**dict(labels))}}} {value}\n"
                for labels, value in samples[start : start + _CHUNK]
            )
