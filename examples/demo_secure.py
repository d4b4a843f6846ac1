"""The part of `make demo` that is about who may come in: a client that is refused, one that is held to its quota beside
another, and a certificate that is renewed while clients write."""

import hashlib
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from tailrace.testing import Cluster

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]
Command = Callable[..., None]

LEDGER = "ledger"
FLOODER, CLERK = "flooder", "clerk"
QUOTA_BYTES = 2_000_000
FLOOD_S = 4.0
VALUE = b"x" * 10_000
WAIT_S = 30.0
# Certificates are looked at often, and quotas count over seconds, so that the demo is short.
SETTINGS: dict[str, str | int] = {"ssl.files.check.interval.ms": 500, "quota.window.num": 3}
QUIET: dict[str, str | int] = {"log_level": 0}


def refuse(cluster: Cluster, show: Show, expect: Expect) -> None:
    stranger = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    try:
        stranger.list_topics(timeout=2)
        expect(False, "somebody came in without a password")
    except KafkaException as error:
        show(f"without a login: {error.args[0].str()}")
    clerk = Producer({**QUIET, **cluster.user(CLERK).confluent()})
    outcomes: list[str] = []
    clerk.produce(LEDGER, b"x", on_delivery=lambda error, _: outcomes.append(error.name() if error else "stored"))
    clerk.flush(WAIT_S)
    expect(outcomes == ["TOPIC_AUTHORIZATION_FAILED"], f"a user without rights was told {outcomes}")
    show(f"as {CLERK}, with a password and without rights: {outcomes[0]}")


def throttle(cluster: Cluster, command: Command, show: Show, expect: Expect) -> None:
    flooder = cluster.user(FLOODER, acls=[f"write topic:{LEDGER}"])
    clerk = cluster.user(CLERK, acls=[f"write topic:{LEDGER}"])
    command("quota", "set", "--user", FLOODER, "--set", f"producer_byte_rate={QUOTA_BYTES}")
    waits_ms: list[float] = []
    outcomes: list[object] = []
    flood = Flood({**QUIET, **flooder.confluent(), "throttle_cb": lambda event: waits_ms.append(event.throttle_time)})
    neighbour = Producer({**QUIET, **clerk.confluent(), "linger.ms": 0})
    slowest_s = 0.0
    end = time.monotonic() + FLOOD_S
    while time.monotonic() < end:
        begun = time.monotonic()
        neighbour.produce(LEDGER, b"a line", on_delivery=lambda error, _: outcomes.append(error))
        expect(neighbour.flush(WAIT_S) == 0 and outcomes[-1] is None, "the neighbour's record was not acknowledged")
        slowest_s = max(slowest_s, time.monotonic() - begun)
        time.sleep(0.05)
    rate = flood.stop()
    expect(bool(waits_ms), "the flooder was never told to wait")
    show(f"{FLOODER} wrote as fast as it could: {rate / 1e6:.1f} MB a second, told {len(waits_ms)} times to wait")
    show(f"  beside it each record of {CLERK} was acknowledged within {slowest_s * 1000:.0f} ms")


class Flood:
    """Writes without end, in a thread."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._acked = 0
        self._is_enough = threading.Event()
        self._begun = time.monotonic()
        self._producer = Producer(settings | {"queue.buffering.max.messages": 1000})
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The bytes a second that were acknowledged."""
        self._is_enough.set()
        self._thread.join()
        rate = self._acked / (time.monotonic() - self._begun)
        self._producer.purge()
        return rate

    def _write(self) -> None:
        while not self._is_enough.is_set():
            try:
                self._producer.produce(LEDGER, VALUE, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        self._acked += 0 if error else len(VALUE)


def renew(cluster: Cluster, command: Command, show: Show, expect: Expect) -> None:
    folder = str(Path(cluster.data) / "security")
    clerk = Producer({**QUIET, **cluster.client_settings.confluent()})
    before = _fingerprint(cluster)
    _write(clerk, expect)
    command("certificate", "renew", "broker", "--folder", folder)
    deadline = time.monotonic() + WAIT_S
    while _fingerprint(cluster) == before:
        expect(time.monotonic() < deadline, "nobody takes up the new certificate")
        _write(clerk, expect)
    _write(clerk, expect)
    show(f"all brokers show {_fingerprint(cluster)}... to new clients, instead of {before}...;")
    show("  nobody was restarted, and a producer has gone on writing by the connection that it had")


def _write(producer: Producer, expect: Expect) -> None:
    producer.produce(LEDGER, b"a line")
    expect(producer.flush(WAIT_S) == 0, "a record was not acknowledged")


def _fingerprint(cluster: Cluster) -> str:
    """Of what all brokers show to new clients; those of before the change as long as one of them shows it."""
    found = []
    for address in cluster.bootstrap.split(","):
        host, _, port = address.partition(":")
        shown = ssl.get_server_certificate((host, int(port)), timeout=WAIT_S)
        found.append(hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest()[:16])
    return next((each for each in found if found.count(each) == len(found)), found[0])
