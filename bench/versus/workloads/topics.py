"""Topics of a workload's own."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from bench.versus.rivals import DEADLINE_S, Running

# Warm topics keep a few segments and give their memory back soon: what is written next takes the same pages.
WARM = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "0"}
_serial = itertools.count()


@contextmanager
def topic(running: Running, partitions: int, *, replicas: int, warm: bool = True) -> Iterator[str]:
    """A new one, deleted at the end. `retention.bytes` counts for each partition: the whole topic keeps about as much
    whatever their number."""
    name = f"versus-{next(_serial)}"
    settings = WARM | {"retention.bytes": str((768 << 20) // partitions)} if warm else {}
    if warm:
        settings["segment.bytes"] = str(max(1 << 20, (384 << 20) // partitions))
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 2})
    (created,) = admin.create_topics([NewTopic(name, partitions, replicas, config=settings)]).values()
    created.result(DEADLINE_S)
    try:
        yield name
    finally:
        (deleted,) = admin.delete_topics([name]).values()
        deleted.result(DEADLINE_S)
