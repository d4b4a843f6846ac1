"""The client in a place without a loop: calls come one by one, and nothing is left behind."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.blocking import BlockingCluster, close_kept, kept_cluster
from tailrace.spark.options.kafka import KafkaSettings, parse_kafka_settings
from tests.certificates import Authority
from tests.unit.client.peer import Peer
from tests.unit.client.security.test_login import SaslBroker
from tests.unit.real.test_tls import serving_context


class ThreadedPeer(NamedTuple):
    peer: Peer
    loop: asyncio.AbstractEventLoop

    @property
    def connections(self) -> int:
        return self.peer.connections

    def settings(self, **options: str) -> KafkaSettings:
        return parse_kafka_settings({"kafka.bootstrap.servers": str(self.peer.address)} | options)

    def hang_up(self) -> None:
        async def close() -> None:
            for writer in list(self.peer.writers):
                writer.close()
                await writer.wait_closed()

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(10)


@contextmanager
def serving(peer: Peer) -> Iterator[ThreadedPeer]:
    """On a loop in another thread."""
    loops: list[asyncio.AbstractEventLoop] = []
    is_ready, is_done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with peer:
            loops.append(asyncio.get_running_loop())
            is_ready.set()
            await asyncio.to_thread(is_done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(10)
        yield ThreadedPeer(peer, loops[0])
    finally:
        is_done.set()
        thread.join()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[..., KafkaSettings]]:
    """A scripted broker with TLS and users; gives the settings to reach it."""
    authority = Authority(tmp_path)
    peer = SaslBroker(tls=serving_context(authority.sign("broker", subject_alt_name="IP:127.0.0.1")))

    def settings(password: str = "secret") -> KafkaSettings:
        return parse_kafka_settings(
            {
                "kafka.bootstrap.servers": str(peer.address),
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.location": str(authority.certificate),
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.username": "alice",
                "kafka.sasl.password": password,
            }
        )

    with serving(peer):
        yield settings


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


@pytest.fixture
def peer() -> Iterator[ThreadedPeer]:
    with serving(Peer()) as found:
        yield found
        close_kept()


def use(settings: KafkaSettings) -> BlockingCluster:
    with kept_cluster(settings) as blocking:
        blocking.run(blocking.cluster.refresh(["t"]))
        return blocking


def test_the_next_task_of_a_process_uses_the_same_connection(peer: ThreadedPeer):
    assert use(peer.settings()) is use(peer.settings())
    assert peer.connections == 1


def test_other_credentials_have_a_connection_of_their_own(peer: ThreadedPeer):
    assert use(peer.settings()) is not use(peer.settings(**{"kafka.client.id": "another"}))
    assert peer.connections == 2
    use(peer.settings())
    assert peer.connections == 2


def test_who_uses_a_cluster_has_it_alone(peer: ThreadedPeer):
    with kept_cluster(peer.settings()) as outer, kept_cluster(peer.settings()) as inner:
        assert outer is not inner


def test_what_a_broker_has_closed_meanwhile_is_opened_anew(peer: ThreadedPeer):
    use(peer.settings())
    peer.hang_up()
    use(peer.settings())
    assert peer.connections == 2


def test_a_failed_task_leaves_nothing(peer: ThreadedPeer):
    def fail() -> None:
        with kept_cluster(peer.settings()) as blocking:
            blocking.run(blocking.cluster.refresh(["t"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    use(peer.settings())
    assert peer.connections == 2


@pytest.mark.parametrize("limit", ["connectionCache.ttlMs", "connectionCache.capacity"])
def test_nothing_is_kept_where_nothing_may_be(peer: ThreadedPeer, limit: str):
    for _ in range(2):
        use(peer.settings(**{limit.lower(): "0"}))
    assert peer.connections == 2


def test_it_is_made_anew_when_its_time_is_over(peer: ThreadedPeer):
    use(peer.settings(**{"connectioncache.ttlms": "1"}))
    time.sleep(0.002)
    use(peer.settings(**{"connectioncache.ttlms": "1"}))
    assert peer.connections == 2


def test_those_that_were_used_last_are_kept(peer: ThreadedPeer):
    first, *others = (peer.settings(**{"kafka.client.id": f"c{n}", "connectioncache.capacity": "2"}) for n in range(3))
    kept = [use(each) for each in (first, *others)]
    assert [use(each) for each in others] == kept[1:]
    assert use(first) is not kept[0]


def test_a_child_leaves_alone_what_its_parent_keeps(peer: ThreadedPeer):
    """Spark forks its workers: whoever closed inherited sockets would take them out of the epoll that both share."""
    before = use(peer.settings())
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int(use(peer.settings()) is before)
            close_kept()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert peer.connections == 2
    assert use(peer.settings()) is before
    assert peer.connections == 2
