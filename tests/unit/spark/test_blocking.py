"""The client in a place without a loop: calls come one by one, and nothing is left behind."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.client.connection import Address
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.kafka import KafkaSettings, parse_kafka_settings
from tests.certificates import Authority
from tests.unit.client.security.test_login import SaslBroker
from tests.unit.real.test_tls import serving_context


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[..., KafkaSettings]]:
    """A scripted broker with TLS and users, on a loop in another thread; gives the settings to reach it."""
    authority = Authority(tmp_path)
    peer = SaslBroker(tls=serving_context(authority.sign("broker", subject_alt_name="IP:127.0.0.1")))
    ready: list[Address] = []
    is_ready, is_done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with peer:
            ready.append(peer.address)
            is_ready.set()
            await asyncio.to_thread(is_done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert is_ready.wait(10)

    def settings(password: str = "secret") -> KafkaSettings:
        return parse_kafka_settings(
            {
                "kafka.bootstrap.servers": str(ready[0]),
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.location": str(authority.certificate),
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.username": "alice",
                "kafka.sasl.password": password,
            }
        )

    yield settings
    is_done.set()
    thread.join()


def test_a_secured_cluster_is_asked_again_and_again(broker: Callable[..., KafkaSettings]):
    with BlockingCluster(broker()) as blocking:
        for _ in range(3):
            assert set(blocking.run(blocking.cluster.refresh(["t"]))) == {"t"}


def test_a_failure_closes_all(broker: Callable[..., KafkaSettings]):
    with pytest.raises(KafkaError) as raised, BlockingCluster(broker("wrong")) as blocking:
        blocking.run(blocking.cluster.refresh(["t"]))
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_certificates_that_are_not_on_this_machine():
    settings = parse_kafka_settings(
        {
            "kafka.bootstrap.servers": "a:1",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "/no/such.pem",
        }
    )
    with pytest.raises(KafkaError, match=r"/no/such\.pem .* cannot be read on this machine"):
        BlockingCluster(settings)
