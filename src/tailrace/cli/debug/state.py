"""What a bundle tells of a node: its settings without secrets, its part of the cluster, its process, its last lines."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
from typing import TYPE_CHECKING, Any

from tailrace import __version__
from tailrace.cli.logs import recent_lines
from tailrace.model.config import SETTINGS, format_value

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

_HIDDEN = "[hidden]"


def node_state(broker: Broker) -> dict[str, Any]:
    return {
        "software": {"tailrace": __version__, "python": sys.version, "platform": platform.platform()},
        "node": broker.node_id,
        "bootstrap": broker.bootstrap,
        "statistics": broker.statistics(),
        "settings": _settings(broker),
        "cluster": _cluster(broker),
        "folders": {folder: shutil.disk_usage(folder)._asdict() for folder in broker.config.log_dirs},
        "usage": _usage(),
        "log": recent_lines(),
    }


def _settings(broker: Broker) -> dict[str, str | None]:
    """Those that were given. What belongs to a single listener may hold anything: its values are left out."""
    config = broker.config
    given = {row.name: row for row in SETTINGS.values() if row.attribute in config.given}
    shown = {
        name: _HIDDEN if row.sensitive or _may_hold_secrets(name) else format_value(row, config.value(row))
        for name, row in sorted(given.items())
    }
    return shown | {name: _HIDDEN for name, _ in config.listener_settings}


def _may_hold_secrets(name: str) -> bool:
    return any(word in name for word in ("password", "secret", "jaas", "token", ".key"))


def _cluster(broker: Broker) -> dict[str, Any]:
    image, leadership = broker.image, broker.quorum.leadership
    partitions = [part for topic in image.topics.values() for part in topic.partitions.values()]
    return {
        "id": image.cluster_id,
        "metadata_offset": image.next_offset,
        "controller": leadership.leader_id,
        "controller_epoch": leadership.epoch,
        "brokers": {number: str(node) for number, node in image.brokers.items()},
        "topics": len(image.topics),
        "partitions": len(partitions),
        "without_leader": sum(part.leader < 0 for part in partitions),
        "under_replicated": sum(len(part.isr) < len(part.replicas) for part in partitions),
    }


def _usage() -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "memory_max_kib": used.ru_maxrss,
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
