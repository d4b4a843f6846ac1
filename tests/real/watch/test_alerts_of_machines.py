"""Shipped alerts about the machine below a node: its disk, its clock, its certificate. Real ones, by small faults."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.apps.scrape import Scraper
from tailrace.cli.secure import authority
from tailrace.cli.secure.setup import broker_certificate
from tailrace.testing import Broker
from tests.nodes import NODE_IDS, free_ports
from tests.real.cluster.test_clocks import Clocks, libfaketime
from tests.real.test_disk import small_disk  # noqa: F401 - a fixture

from .watching import Watch, targets_in

pytestmark = pytest.mark.long

CHANGED = {
    "DiskFilling": {"for_seconds": 2.0},
    "DiskFullSoon": {"for_seconds": 2.0, "window_seconds": 10.0},  # 15 minutes of an hour
    "ClockSkew": {"for_seconds": 5.0},
}
STEP_BYTES = 512 << 10


async def test_a_disk_that_fills(small_disk: Path) -> None:  # noqa: F811
    with Broker(data=small_disk / "data") as broker:
        watch = Watch(targets_in(broker.data), changes=CHANGED)
        path = small_disk / "filler"
        path.touch()

        def fill() -> None:
            with path.open("ab") as file:
                file.write(bytes(STEP_BYTES))

        await watch.wait({"DiskFullSoon"}, work=fill)
        assert "DiskFilling" not in watch.firing, "there is still room"
        disk = os.statvfs(small_disk)
        with path.open("ab") as file:
            file.write(bytes((disk.f_bavail - disk.f_blocks // 10) * disk.f_frsize))
        await watch.wait({"DiskFilling"})
        path.unlink()
        await watch.wait({"DiskFilling", "DiskFullSoon"}, over=True)


async def test_a_certificate_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker({"ssl.files.check.interval.ms": "200"}, secure=True) as broker:
        login = broker.client_settings.login
        scraper = Scraper(
            timeout_seconds=10.0, user=f"{login.username}:{login.password}", authorities=login.authority or ""
        )
        watch = Watch(targets_in(broker.data), scraper=scraper)
        await watch.look()
        assert watch.firing == set()
        path = Path(broker_certificate(broker.data))

        def replace(days: int) -> None:
            monkeypatch.setattr(authority, "DAYS", days)
            authority.make_certificate(str(path.parent), path.stem, ["localhost", "127.0.0.1", "::1"])

        replace(13)
        await watch.wait({"CertificateEnds"})
        replace(365)
        await watch.wait({"CertificateEnds"}, over=True)


class Watched(Clocks):
    """Nodes that tell their metrics, and whose clocks can be set."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))
        super().__init__(folder, library)

    def settings(self, node_id: int) -> dict[str, str]:
        return {**super().settings(node_id), "metrics.listeners": f"HTTP://127.0.0.1:{self.ports[node_id]}"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Watched]:
    with Watched(tmp_path, libfaketime()) as found:
        yield found


async def test_a_clock_that_is_wrong(nodes: Watched) -> None:
    watch = Watch(*(f"127.0.0.1:{port}" for port in nodes.ports.values()), changes=CHANGED)
    await watch.look()
    assert "ClockSkew" not in watch.firing
    nodes.set(2, 5)
    await watch.wait({"ClockSkew"})
    nodes.set(2, 0)
    await watch.wait({"ClockSkew"}, over=True)
