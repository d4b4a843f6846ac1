"""What the writer of exactly-once writes is told, by options or by default. Crosses from the driver to the tasks."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.spark.options.write import DECISION_TOPIC, TRANSACTIONAL_ID_PREFIX


class ExactlyOnceSettings(NamedTuple):
    prefix: str = TRANSACTIONAL_ID_PREFIX
    decision_topic: str = DECISION_TOPIC
    # The coordinator aborts a part that stays open longer. It has to last for the slowest task, the driver's check and
    # a restart of the driver; readers of committed records wait as long for parts that nobody ends. The most that
    # brokers allow unless they are told otherwise (transaction.max.timeout.ms).
    timeout_ms: int = 900_000
    # The timeout of the driver's own one-record transaction: other queries wait as long for a driver that died in it.
    # Longer than brokers wait for one of them that died before they acknowledge without it (Kafka: some 10 seconds).
    decision_timeout_ms: int = 30_000
    # How long requests are repeated while brokers are away, and how long what is under way is waited for.
    retry_timeout_ms: int = 120_000
    # A task that has failed tries so long to abort its transaction.
    abort_timeout_ms: int = 5000
    # Evidence is a committed offset, which brokers forget some time after nobody has committed any (Kafka: 7 days). If
    # a decision is older than this, evidence that is missing says nothing.
    evidence_age_ms_max: int = 24 * 3600 * 1000
    # Requests about parts that are under way at a time.
    parallelism: int = 32
