"""Records that could not be decoded, written to a topic of their own, so that somebody can look at them.

A dead letter is the record as it was (key, value, headers) with headers added that say what is wrong with it and where
it came from. It is written by the task that reads the record, under an idempotent producer, and acknowledged by all
in-sync replicas before any row of the same batch is handed to Spark: a query that has gone past a bad record has left
a dead letter of it. A task that is run again, and a batch query that is, writes its dead letters again: whoever wants
each once takes one per topic, partition and offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.producer import ACKS_ALL, Headers, Producer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import KafkaSettings

# Texts in UTF-8, numbers in decimal, so that every tool shows them.
HEADER_REASON = "tailrace.deadletter.reason"
HEADER_COLUMN = "tailrace.deadletter.column"
HEADER_TOPIC = "tailrace.deadletter.topic"
HEADER_PARTITION = "tailrace.deadletter.partition"
HEADER_OFFSET = "tailrace.deadletter.offset"
HEADER_TIMESTAMP = "tailrace.deadletter.timestamp"
# Of a pipeline: which run wrote it, in which batch. An attempt at a batch that was cut off writes letters too.
HEADER_RUN = "tailrace.deadletter.run"
HEADER_BATCH = "tailrace.deadletter.batch"

# Headers count against the size of a record, and a reason may quote a parser at length.
_REASON_CHARACTERS_MAX = 500


class Attempt(NamedTuple):
    run: str
    batch: int


class DeadLetter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    origin: TopicPartition
    offset: int
    timestamp_ms: int
    column: str  # key or value: what could not be decoded
    reason: str


class DeadLetterWriter:
    """`close` it at the end."""

    def __init__(
        self, blocking: BlockingCluster, topic: str, settings: KafkaSettings, attempt: Attempt | None = None
    ) -> None:
        self._blocking = blocking
        self._attempt = attempt
        self._topic = topic
        # Whatever is asked of the rest of the job, nothing less will do for a record that is left out of the rows.
        self._producer = Producer(blocking.cluster, settings.producer._replace(acks=ACKS_ALL, idempotent=True))

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Until all are acknowledged. Raises KafkaError if one of them is not."""
        self._blocking.run(self._write(letters))

    async def _write(self, letters: Sequence[DeadLetter]) -> None:
        try:
            # Without a time of its own it would keep that of the record, and a backfill of old records would write
            # dead letters that retention deletes at once.
            sent = [
                await self._producer.send(
                    self._topic, each.value, key=each.key, headers=headers_of(each, self._attempt)
                )
                for each in letters
            ]
            await self._producer.flush()
            await asyncio.gather(*sent)
        except KafkaError as error:
            first = letters[0]
            raise KafkaError(
                error.code,
                f"dead letters of {first.origin} from offset {first.offset} on were not taken by topic {self._topic}, "
                f"so the read fails and nothing is lost: {error}",
            ) from error

    def close(self) -> None:
        self._blocking.run(self._close())

    async def _close(self) -> None:
        self._producer.close()


def headers_of(letter: DeadLetter, attempt: Attempt | None = None) -> Headers:
    """Those of the record first. One that went through here before has ours twice: the last ones are the latest."""
    of_attempt = (
        () if attempt is None else ((HEADER_RUN, attempt.run.encode()), (HEADER_BATCH, str(attempt.batch).encode()))
    )
    return (
        *letter.headers,
        (HEADER_REASON, letter.reason[:_REASON_CHARACTERS_MAX].encode()),
        (HEADER_COLUMN, letter.column.encode()),
        (HEADER_TOPIC, letter.origin.topic.encode()),
        (HEADER_PARTITION, str(letter.origin.partition).encode()),
        (HEADER_OFFSET, str(letter.offset).encode()),
        (HEADER_TIMESTAMP, str(letter.timestamp_ms).encode()),
        *of_attempt,
    )


def check_topic_exists(blocking: BlockingCluster, topic: str, settings: KafkaSettings) -> None:
    """Before a query starts: a missing topic would else be noticed at the first bad record, perhaps days later. Raises
    OptionError."""
    may_be_created = settings.producer.create_topics

    async def ask() -> None:
        try:
            await blocking.cluster.refresh([topic], allow_auto_creation=may_be_created)
        except KafkaError as error:
            # It passes by itself only if the broker is about to create the topic.
            if error.code.retriable and (may_be_created or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
            raise OptionError(f"option deadLetterTopic: {error.message}") from None

    blocking.run(blocking.cluster.with_retries(ask, timeout_ms=settings.limits.request_timeout_ms))
