"""What alerts look at beside all else: room on disks, certificates, transactions and groups in trouble."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, own_gauge
from tailrace.model.metrics.text import label

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_TOTAL = own_gauge("log_dir_total_bytes", "Size of the file system that a data folder is on.")
_USABLE = own_gauge("log_dir_usable_bytes", "What is free on it.")
_CERTIFICATE = own_gauge("certificate_not_after_seconds", "When a certificate of a listener ends, since 1970.")
_LATE = gauge(
    "kafka_server_replicamanager",
    "PartitionsWithLateTransactionsCount",
    "Led here, with a transaction that is open for longer than transaction.max.timeout.ms and five minutes.",
)
_IDLE = own_gauge("open_transaction_idle_seconds", "How long the idlest open transaction here was not written to.")
_REBALANCES = own_gauge(
    "group_rebalances_recent", "Rebalances of a group in the last ten minutes, where there were any."
)
_RECENT_MS = 600_000
_GROUPS_MAX = 1000
# Kafka's: what a coordinator is given to end a transaction.
_LATE_MS = 300_000
_CHUNK = 64


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    services = watched.services
    now_ms = services.ports.clock.wall_ms()
    if services.endings is not None:
        endings = {label(listener=name, what=what): ends_ms for name, what, ends_ms in services.endings()}
        yield text.write(_CERTIFICATE, [(labels, ends_ms / 1000) for labels, ends_ms in endings.items()])
    if watched.roles.is_broker:
        yield from _folders(watched, text)
        yield from _transactions(watched, text, now_ms)
        counts = services.coordination.groups.history.counts_since(now_ms - _RECENT_MS)
        groups = [(label(group=name), count) for name, count in islice(counts, _GROUPS_MAX)]
        yield text.write(_REBALANCES, groups)


def _folders(watched: Watched, text: Text) -> Iterator[str]:
    disk = watched.services.ports.disk
    totals, usables = [], []
    for folder in watched.services.directories:
        if folder.is_offline:
            continue
        try:
            total, usable = disk.total_bytes(folder.path), disk.free_bytes(folder.path)
        except OSError:
            continue  # It fails: its own series tells so.
        labels = label(logDirectory=folder.path)
        totals.append((labels, total))
        usables.append((labels, usable))
        yield ""
    yield text.write(_TOTAL, totals)
    yield text.write(_USABLE, usables)


def _transactions(watched: Watched, text: Text, now_ms: int) -> Iterator[str]:
    services = watched.services
    late_ms = services.config.transaction_max_timeout_ms + _LATE_MS
    late, idlest_ms = 0, 0
    for number, partition in enumerate(list(services.replicas.partitions.values())):
        if partition.is_leader and (written_ms := partition.log.producers.idlest_open_ms) is not None:
            idle_ms = now_ms - written_ms
            late += idle_ms > late_ms
            idlest_ms = max(idlest_ms, idle_ms)
        if number % _CHUNK == 0:
            yield ""
    yield text.write(_LATE, [("", late)])
    yield text.write(_IDLE, [("", idlest_ms / 1000)])
