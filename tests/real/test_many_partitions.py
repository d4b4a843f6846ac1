"""A thousand partitions: the start after a clean stop looks at none of their records, and opens hardly any file."""

import os

from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .raw import RawClient, batch

TOPICS, PARTITIONS = 10, 100
# The process's own, the metadata log and the listener; not one for each partition.
OPEN_FILES_MAX = 60


def test_files_are_opened_when_they_are_needed(fresh_tailrace_broker: Broker):
    broker = fresh_tailrace_broker
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [NewTopic(f"topic-{number}", PARTITIONS, 1) for number in range(TOPICS)]
    for created in admin.create_topics(wanted).values():
        created.result(30)
    with RawClient(broker.bootstrap) as client:
        assert client.produce("topic-7", batch(b"kept"), partition=42)[:2] == (0, 0)
    broker.restart()
    assert len(os.listdir(f"/proc/{broker.process_id}/fd")) < OPEN_FILES_MAX
    with RawClient(broker.bootstrap) as client:
        assert client.produce("topic-7", batch(b"next"), partition=42)[:2] == (0, 1)
        assert client.produce("topic-0", batch(b"first"), partition=99)[:2] == (0, 0)
    assert len(os.listdir(f"/proc/{broker.process_id}/fd")) < OPEN_FILES_MAX
