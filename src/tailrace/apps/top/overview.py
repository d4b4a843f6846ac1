"""A cluster at a glance, from two readings of all its nodes. Pure.

Rates are differences of counters over the time between the readings; a node that began anew, or was not read the first
time, has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.apps.scrape import Labels, Reading

_SHOWN = 10


@dataclass(slots=True)
class Node:
    instance: str
    is_up: bool
    problem: str = ""
    node: str = ""
    records_in: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    requests: float = 0.0
    connections: float = 0.0
    partitions: float = 0.0
    leaders: float = 0.0
    loop_lag_ms: float = 0.0


@dataclass(slots=True)
class Hot:
    """A partition by what is written to it, a group by its lag, a request by its time, or a client by what it does."""

    name: str
    values: dict[str, float]


@dataclass(slots=True)
class Overview:
    nodes: list[Node] = field(default_factory=list)
    records_in: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    topics: float = 0.0
    partitions: float = 0.0
    offline: float = 0.0
    under_replicated: float = 0.0
    under_min_isr: float = 0.0
    controllers: float = 0.0
    hot_partitions: list[Hot] = field(default_factory=list)
    groups: list[Hot] = field(default_factory=list)
    slow_requests: list[Hot] = field(default_factory=list)
    clients: list[Hot] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Index:
    """The samples of one reading, by name."""

    def __init__(self, reading: Reading) -> None:
        self.at = reading.at.steady
        self._by_name: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name, labels, value in reading.samples or ():
            self._by_name[name][labels] = value

    def all(self, name: str) -> dict[Labels, float]:
        return self._by_name.get(name, {})

    def value(self, name: str) -> float:
        return self.all(name).get(frozenset(), 0.0)

    def total(self, name: str) -> float:
        return sum(self.all(name).values())

    def names(self, prefix: str) -> Iterator[str]:
        return (name for name in self._by_name if name.startswith(prefix))


_TOPICS = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_TIME = "kafka_network_requestmetrics_totaltimems"
# As rules for the JMX exporter write them.
_QUANTILES = {"0.50": "p50_ms", "0.99": "p99_ms", "0.999": "p99.9_ms"}


def overview(before: Sequence[Reading], now: Sequence[Reading]) -> Overview:
    told = Overview()
    earlier = {each.instance: _Index(each) for each in before if each.samples is not None}
    hot: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    groups: dict[str, float] = defaultdict(float)
    slow: dict[str, dict[str, float]] = defaultdict(dict)
    clients: dict[str, dict[str, float]] = defaultdict(dict)
    for reading in now:
        if reading.samples is None:
            told.nodes.append(Node(reading.instance, is_up=False, problem=reading.problem))
            continue
        index = _Index(reading)
        past = earlier.get(reading.instance)
        told.nodes.append(_node(reading.instance, index, past))
        told.topics = max(told.topics, index.value(f"{_CONTROLLER}globaltopiccount"))
        told.partitions = max(told.partitions, index.value(f"{_CONTROLLER}globalpartitioncount"))
        told.offline = max(told.offline, index.value(f"{_CONTROLLER}offlinepartitionscount"))
        told.controllers += index.value(f"{_CONTROLLER}activecontrollercount")
        told.under_replicated += index.value(f"{_REPLICAS}underreplicatedpartitions")
        told.under_min_isr += index.value(f"{_REPLICAS}underminisrpartitioncount")
        for key in ("bytes_in", "bytes_out", "messages_in"):
            for labels, rate in _rates(f"tailrace_partition_{key}_total", index, past):
                facts = dict(labels)
                hot[f"{facts.get('topic')}-{facts.get('partition')}"][key] += rate
        for labels, lag in index.all("kafka_consumergroup_lag").items():
            facts = dict(labels)
            groups[facts.get("consumergroup", facts.get("group", ""))] += max(lag, 0.0)
        for labels, time_ms in index.all(_TIME).items():
            facts = dict(labels)
            column = _QUANTILES.get(facts.get("quantile", ""))
            if column is not None:
                kept = slow[facts.get("request", "")]
                kept[column] = max(kept.get(column, 0.0), time_ms)
        _note_clients(index, clients)
    _sum_up(told)
    told.hot_partitions = _first(hot, "bytes_in", "bytes_out")
    told.groups = _first({name: {"lag": lag} for name, lag in groups.items()}, "lag")
    told.slow_requests = _first(slow, "p99_ms")
    told.clients = _first(clients, "series")
    return told


def _node(instance: str, index: _Index, past: _Index | None) -> Node:
    def rate(name: str) -> float:
        return sum(value for labels, value in _rates(name, index, past) if not dict(labels).get("topic"))

    info = next(iter(index.all("tailrace_build_info")), frozenset())
    return Node(
        instance,
        is_up=True,
        node=dict(info).get("node", ""),
        records_in=rate(f"{_TOPICS}messagesin_total"),
        bytes_in=rate(f"{_TOPICS}bytesin_total"),
        bytes_out=rate(f"{_TOPICS}bytesout_total"),
        requests=rate("kafka_network_requestmetrics_requests_total"),
        connections=index.total("kafka_server_socket_server_metrics_connection_count"),
        partitions=index.value(f"{_REPLICAS}partitioncount"),
        leaders=index.value(f"{_REPLICAS}leadercount"),
        loop_lag_ms=index.value("tailrace_loop_lag_seconds") * 1000,
    )


def _rates(name: str, index: _Index, past: _Index | None) -> Iterator[tuple[Labels, float]]:
    if past is None or index.at <= past.at:
        return
    before = past.all(name)
    for labels, value in index.all(name).items():
        grown = value - before.get(labels, 0.0)
        if grown >= 0:
            yield labels, grown / (index.at - past.at)


def _note_clients(index: _Index, clients: dict[str, dict[str, float]]) -> None:
    """Those that push their own metrics (KIP-714): nobody else is known by name."""
    for name in index.names("client_"):
        for labels in index.all(name):
            facts = dict(labels)
            if "client_instance_id" in facts:
                who = f"{facts.get('client_id', '')} ({facts.get('client_software_name', '')})"
                clients[who]["series"] = clients[who].get("series", 0.0) + 1


def _sum_up(told: Overview) -> None:
    for node in told.nodes:
        told.records_in += node.records_in
        told.bytes_in += node.bytes_in
        told.bytes_out += node.bytes_out


def _first(found: dict[str, dict[str, float]], *keys: str) -> list[Hot]:
    """Those with the most, of what has anything at all."""
    ordered = sorted(found.items(), key=lambda each: -sum(each[1].get(key, 0.0) for key in keys))
    return [Hot(name, dict(values)) for name, values in ordered[:_SHOWN] if any(values.values())]
