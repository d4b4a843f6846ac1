"""The protocol of the exactly-once sink against Apache Kafka: the same tests that our own broker has to pass."""

from collections.abc import Iterator

import pytest

from tests.apache_kafka import ApacheKafka
from tests.unit.spark.sink.exactly_once.test_protocol import (  # noqa: F401 - pytest finds them here
    cluster,
    query,
    test_a_batch_that_was_decided_on_is_not_left_behind,
    test_a_driver_that_dies_at_any_request,
    test_a_driver_that_was_thought_dead_cannot_commit,
    test_a_part_with_too_little_time_left_is_not_decided_on,
    test_a_plan_that_gives_other_tasks_other_rows_succeeds_or_fails_loudly,
    test_a_task_that_dies_at_any_request_is_run_again,
    test_an_attempt_that_comes_late_makes_the_commit_fail_and_nothing_is_visible,
    test_batch_after_batch,
    test_what_tasks_of_an_earlier_run_left_open_is_aborted,
    test_what_was_decided_outlives_an_abort,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def broker(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    # Transactions whose time is over are looked for every ten seconds otherwise.
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=settings) as kafka:
        yield kafka
