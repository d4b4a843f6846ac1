"""What clients have told of themselves, as series for the metrics listener: bounded in all and for each client.

A series is a metric with its labels. Names and labels are those that Prometheus allows; text is cut where it is long.
What does not fit is counted. A client's series go with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.broker.telemetry.otlp import Labels, Point
from tailrace.controller.telemetry.subscriptions import Client

_NAME_MAX, _TEXT_MAX, _LABELS_MAX = 200, 200, 20
_NOT_IN_NAMES = r"[^a-zA-Z0-9_]"


class Key(NamedTuple):
    name: str
    labels: Labels
    is_counter: bool


class SeriesStore:
    def __init__(self, *, series_max: int, series_per_client_max: int) -> None:
        self._series_max = series_max
        self._series_per_client_max = series_per_client_max
        self._clients: dict[bytes, dict[Key, float]] = {}
        self._labels: dict[bytes, Labels] = {}
        self.count = 0
        self.left_out = 0  # Points for which there was no room.

    def add(self, instance_id: bytes, client: Client, points: Iterable[Point]) -> Iterator[None]:
        """One at a time: whoever calls it may turn to something else in between."""
        series = self._clients.setdefault(instance_id, {})
        self._labels[instance_id] = _client_labels(client)
        for point in points:
            yield
            if not math.isfinite(point.value):
                continue
            key = Key(_name(point.name), _clean_labels(point.labels), point.is_counter)
            if key not in series:
                if self.count >= self._series_max or len(series) >= self._series_per_client_max:
                    self.left_out += 1
                    continue
                self.count += 1
                series[key] = 0.0
            series[key] = series[key] + point.value if point.is_delta else point.value

    def remove(self, instance_id: bytes) -> None:
        self.count -= len(self._clients.pop(instance_id, ()))
        self._labels.pop(instance_id, None)

    def by_metric(self) -> dict[tuple[str, bool], list[tuple[Labels, float]]]:
        """For each name, and whether it is a counter: labels and values."""
        found: dict[tuple[str, bool], list[tuple[Labels, float]]] = {}
        for instance_id, series in self._clients.items():
            of_client = self._labels[instance_id]
            for key, value in series.items():
                found.setdefault((key.name, key.is_counter), []).append(((*of_client, *key.labels), value))
        return found


def _client_labels(client: Client) -> Labels:
    return (
        ("client_instance_id", client.client_instance_id),
        ("client_id", client.client_id[:_TEXT_MAX]),
        ("client_software_name", client.client_software_name[:_TEXT_MAX]),
        ("client_software_version", client.client_software_version[:_TEXT_MAX]),
    )


_OF_CLIENT = frozenset(Client._fields)


def _clean_labels(labels: Labels) -> Labels:
    """Each key once, none of those that say who the client is: a client cannot pass for another."""
    clean = {_name(key): value[:_TEXT_MAX] for key, value in labels[:_LABELS_MAX]}
    return tuple(sorted((key, value) for key, value in clean.items() if key not in _OF_CLIENT))


def _name(text: str) -> str:
    name = re.sub(_NOT_IN_NAMES, "_", text[:_NAME_MAX]) or "_"
    return f"_{name}" if name[0].isdigit() else name
