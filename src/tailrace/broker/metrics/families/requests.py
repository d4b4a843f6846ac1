"""Requests by API: how many, with which errors, how large and how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import meter, own_counter, own_gauge
from tailrace.model.errors import ErrorCode
from tailrace.model.metrics.instruments import Histogram, quantiles_ms
from tailrace.model.metrics.text import Kind, Metric, label
from tailrace.wire import apis

if TYPE_CHECKING:
    from tailrace.broker.metrics.requests import ApiTimes
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_MBEAN = "kafka_network_requestmetrics"
_REQUESTS = meter(_MBEAN, "Requests", "Requests, by API and version.")
_ERRORS = meter(_MBEAN, "Errors", "Error codes in answers, by API; NONE counts answers without any.")
_REQUEST_BYTES = Metric(f"{_MBEAN}_requestbytes", Kind.SUMMARY, "Sizes of requests in bytes.")
_SENT_BYTES = own_counter("response_bytes", "Bytes of answers, by API.")
_SECONDS = Metric(
    "tailrace_request_duration_seconds", Kind.HISTOGRAM, "From the first byte that was taken to the last one sent."
)
_SAMPLE = own_gauge(
    "request_time_sample_every", "Requests of which about one has its time taken once there are many; all are counted."
)
_EXPRESS_SAMPLE = own_gauge(
    "express_time_sample_every", "Runs of small produces of which one has its time taken; all of them are counted."
)
_TIMES = tuple(
    (Metric(f"{_MBEAN}_{name.lower()}", Kind.SUMMARY, f"{what}, in milliseconds; quantiles of the last minute."), field)
    for name, what, field in (
        ("TotalTimeMs", "Time from taking a request to its answer's last byte", "total"),
        ("LocalTimeMs", "Time in the handler", "handling"),
        ("RemoteTimeMs", "Time waiting for replicas, records or other nodes", "parked"),
        ("ResponseSendTimeMs", "Time until the socket has taken the answer", "sending"),
    )
)
# As rules write Kafka's 50thPercentile to 999thPercentile.
_QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
# Of the buckets that are kept: bounds are a factor of 4 apart.
_BUCKETS_EVERY = 4
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    meters = watched.meters
    meters.settle()
    by_api = sorted(meters.by_api.items())
    yield text.write(
        _REQUESTS,
        (
            (label(request=apis.api_name(key), version=version), each.requests)
            for (key, version), each in sorted(meters.by_version.items())
        ),
    )
    yield text.write(_ERRORS, (sample for key, each in by_api for sample in _errors(apis.api_name(key), each)))
    head, name = text.begin(_REQUEST_BYTES)
    yield head
    for key, each in by_api:
        labels, count = label(request=apis.api_name(key)), meters.requests_of(key)
        yield f"{name}_sum{{{labels}}} {each.received_bytes}\n{name}_count{{{labels}}} {count}\n"
    yield text.write(_SENT_BYTES, ((label(request=apis.api_name(key)), each.sent_bytes) for key, each in by_api))
    for metric, field in _TIMES:
        head, name = text.begin(metric)
        yield head
        for key, each in by_api:
            yield _summary(name, label(request=apis.api_name(key)), getattr(each, field), each.windows[field].counts())
    head, name = text.begin(_SECONDS)
    yield head
    for key, each in by_api:
        yield _histogram(name, label(request=apis.api_name(key)), each.total)
    yield text.write(_SAMPLE, [("", meters.sample_every)])
    yield text.write(_EXPRESS_SAMPLE, [("", meters.express_sample_every)])


def _errors(request: str, times: ApiTimes) -> Iterator[tuple[str, int]]:
    if times.faultless:
        yield label(request=request, error=ErrorCode.NONE.name), times.faultless
    for code, count in sorted(times.errors.items()):
        name = _ERROR_NAMES.get(code, str(code))
        yield label(request=request, error=name), count


def _summary(name: str, labels: str, histogram: Histogram, last_minute: list[int]) -> str:
    values = quantiles_ms(last_minute, list(_QUANTILES.values()))
    lines = [
        f'{name}{{{labels},quantile="{quantile}"}} {round(value, 4)}\n'
        for quantile, value in zip(_QUANTILES, values, strict=True)
    ]
    lines.append(f"{name}_sum{{{labels}}} {round(histogram.sum_ms, 3)}\n")
    lines.append(f"{name}_count{{{labels}}} {histogram.count}\n")
    return "".join(lines)


def _histogram(name: str, labels: str, histogram: Histogram) -> str:
    lines = [
        f'{name}_bucket{{{labels},le="{bound_ms / 1000:.6g}"}} {count}\n'
        for bound_ms, count in histogram.cumulated(_BUCKETS_EVERY)
    ]
    count = histogram.count
    lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {count}\n')
    lines.append(f"{name}_sum{{{labels}}} {histogram.sum_ms / 1000:.6g}\n{name}_count{{{labels}}} {count}\n")
    return "".join(lines)
