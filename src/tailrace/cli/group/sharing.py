"""`tailrace consume --share-group`: records from a queue. What was written is accepted; what was taken and not written,
since the count was reached or the reader of our output has left, is given back."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

from tailrace.cli.output import Progress, is_terminal, note
from tailrace.client.metadata import Cluster
from tailrace.client.shares.consumer import ACCEPT, RELEASE, ShareConsumer, ShareOptions
from tailrace.model.ids import Uuid, uuid_text
from tailrace.wire.records import Record

_POLL_MS = 500
# A count is reached without taking many more.
_RECORDS_MAX = 500

Write = Callable[[str, int, Record], bytes]


async def consume_in_share_group(cluster: Cluster, options: argparse.Namespace, write: Write) -> int:
    # A group may wait for a topic to appear; whoever mistypes it should not have to.
    await cluster.topic(options.topic)
    member_id = uuid_text(Uuid(cluster.ports.random.uuid()))
    records_max = min(_RECORDS_MAX, options.count or _RECORDS_MAX)
    consumer = ShareConsumer(cluster, ShareOptions(options.share_group, (options.topic,), member_id, records_max))
    progress = Progress("consumed", is_shown=not is_terminal(sys.stdout))
    # However this process is ended, as with Ctrl-C: others should not have to wait for locks to run out.
    on_terminate = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    left = options.count
    try:
        while left != 0:
            records, refused = await consumer.poll(_POLL_MS)
            for each in refused:
                note(f"{len(each.offsets)} of {each.partition} will come again: {each.error.message}")
            for record in records:
                if left == 0:
                    consumer.acknowledge(record, RELEASE)
                    continue
                line = write(record.partition.topic, record.partition.partition, record.record)
                sys.stdout.buffer.write(line)
                consumer.acknowledge(record, ACCEPT)
                left = None if left is None else left - 1
                progress.add(1, len(line))
            sys.stdout.buffer.flush()
    finally:
        progress.end()
        await consumer.close()
        signal.signal(signal.SIGTERM, on_terminate)
    return 0
