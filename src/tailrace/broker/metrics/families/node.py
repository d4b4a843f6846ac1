"""A process: clock, version, uptime, what it takes of its machine, lag of the loop, connections, request memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.broker.metrics.families.meters import gauge, own_counter, own_gauge
from tailrace.model.metrics.text import Kind, Metric, label

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_CLOCK = own_gauge("clock_seconds", "This node's wall clock as it begins to answer, in seconds since 1970.")
_INFO = own_gauge("build_info", "1, with the version, the node and its cluster as labels.")
_STARTED = Metric("process_start_time_seconds", Kind.GAUGE, "When this node was started, in seconds since 1970.")
_SERVER = "kafka_server_kafkaserver"
_CPU = Metric("process_cpu_seconds", Kind.COUNTER, "Processor time of this process, in user code and in the kernel.")
_OF_PROCESS = (
    (Metric("process_resident_memory_bytes", Kind.GAUGE, "Memory that this process holds."), "resident_bytes"),
    (Metric("process_virtual_memory_bytes", Kind.GAUGE, "Addresses that are mapped."), "virtual_bytes"),
    (Metric("process_open_fds", Kind.GAUGE, "Files and sockets that are open."), "open_files"),
    (Metric("process_max_fds", Kind.GAUGE, "How many of them may be."), "open_files_max"),
    (gauge(_SERVER, "linux_disk_read_bytes", "Bytes that this process had read from devices."), "disk_read_bytes"),
    (gauge(_SERVER, "linux_disk_write_bytes", "Bytes that it had written to devices."), "disk_written_bytes"),
)
_APP = gauge("kafka_server_app_info", "starttimems", "The same in milliseconds, as Kafka tells it.")
_LAG = own_gauge("loop_lag_seconds", "How late the event loop was when it was last looked at.")
_LAG_RECENT = own_gauge("loop_lag_recent_seconds", "The largest lag of the last fifteen to thirty seconds.")
_LAG_MAX = own_gauge("loop_lag_max_seconds", "The largest lag since the start.")

_CONNECTIONS = gauge("kafka_server_socket_server_metrics", "connection_count", "Open connections, by listener.")
_REFUSED = own_counter("refused_connections", "Peers that were turned away, or broke the protocol.")
_BUFFERS = own_gauge("request_buffer_bytes", "Memory of requests that are being received or handled.")
_SESSIONS = gauge("kafka_server_fetchsessioncache", "NumIncrementalFetchSessions", "Fetch sessions.")


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    services, lag = watched.services, watched.node.lag
    # First of all: a long page takes its time, and whoever reads it compares this with when its answer began.
    yield text.write(_CLOCK, [("", services.ports.clock.wall_ms() / 1000)])
    info = label(version=__version__, node=services.node_id, cluster=services.image.cluster_id)
    yield text.write(_INFO, [(info, 1)])
    yield text.write(_STARTED, [("", watched.started_ms / 1000)])
    usage = services.ports.process.usage()
    if usage is not None:
        yield text.write(_CPU, [("", round(usage.cpu_seconds, 6))])
        for metric, field in _OF_PROCESS:
            value = getattr(usage, field)
            yield text.write(metric, [] if value is None else [("", value)])
    yield text.write(_APP, [(label(id=services.node_id), watched.started_ms)])
    yield text.write(_LAG, [("", round(lag.last_ms / 1000, 6))])
    yield text.write(_LAG_RECENT, [("", round(lag.recent_max_ms / 1000, 6))])
    yield text.write(_LAG_MAX, [("", round(lag.max_ms / 1000, 6))])
    counts = Counter(each.listener.name for acceptor in watched.node.acceptors for each in acceptor.connections)
    yield text.write(_CONNECTIONS, [(label(listener=name), count) for name, count in sorted(counts.items())])
    yield text.write(_REFUSED, [("", sum(each.refused_count for each in watched.node.acceptors))])
    yield text.write(_BUFFERS, [("", sum(each.buffers.lent_bytes for each in watched.node.protocols))])
    yield text.write(_SESSIONS, [("", len(services.sessions))])
