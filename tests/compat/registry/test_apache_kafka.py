"""Registries on Apache Kafka 4.3: two of them, one writer, and one that wakes up too late is refused by the
partition."""

import os
import signal
from pathlib import Path

import pytest

from tests.apache_kafka import ApacheKafka
from tests.real.registry.asking import RegistryProcess, ask, avro, wait_until
from tests.real.registry.test_several import QUICK, check_topic

pytestmark = pytest.mark.long


def test_a_writer_that_sleeps_is_shut_out(kafka_class_path: str, tmp_path: Path):
    with (
        ApacheKafka(kafka_class_path, tmp_path) as kafka,
        RegistryProcess(kafka.bootstrap, tmp_path / "one.log", *QUICK) as one,
        RegistryProcess(kafka.bootstrap, tmp_path / "two.log", *QUICK) as two,
    ):
        writer, other = sorted((one, two), key=lambda each: each.url)  # The smallest address is elected.
        wait_until(lambda: ask(other.url, "POST", "/subjects/s/versions", avro("a")).status == 200)
        assert ask(writer.url, "POST", "/subjects/s/versions", avro("a", "b")).content["version"] == 2
        os.kill(writer.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: ask(other.url, "POST", "/subjects/s/versions", avro("a", "c")).status == 200)
        finally:
            os.kill(writer.process.pid, signal.SIGCONT)
        new = avro("a", "d")
        answer = wait_until(
            lambda: (found := ask(writer.url, "POST", "/subjects/s/versions", new)).status == 200 and found
        )
        assert answer.content["version"] == 4
        assert check_topic(kafka.bootstrap) == {("s", number): number for number in (1, 2, 3, 4)}
