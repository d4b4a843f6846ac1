"""Large values in a folder as a store: written once, checked when read, deleted by day."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.kit import Bytes, Message
from tailrace.kit.claims import ClaimDamagedError, ClaimMissingError, Claims
from tailrace.kit.messages import Source
from tailrace.model.ports import StoreError
from tailrace.real.clock import RealClock
from tailrace.tier.store.guard import GuardLimits
from tests.nodes import free_ports

DAY_MS = 86_400_000
LARGE = bytes(range(256)) * 40_000


class ShiftedClock(RealClock):
    days = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.days * DAY_MS


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def claims(tmp_path: Path, clock: ShiftedClock) -> AsyncIterator[Claims]:
    quick = GuardLimits(tries=2, backoff_ms=1)
    (tmp_path / "store").mkdir()
    async with Claims(f"file://{tmp_path}/store", threshold_bytes=1000, limits=quick, clock=clock) as opened:
        yield opened


def _objects(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())


async def _record(claims: Claims, value: bytes | None, topic: str = "scans") -> Message:
    """As a consumer would read what a producer wrote."""
    reduced, headers = await claims.check_in(topic, value)
    return Message(7, 0, None, reduced, headers, Source(topic, 0, Bytes(), Bytes()))


@pytest.mark.parametrize("value", [None, b"", b"x" * 1000])
async def test_what_is_small_stays_in_the_record(claims: Claims, tmp_path: Path, value: bytes | None):
    record = await _record(claims, value)
    assert (record.raw_value, record.headers) == (value, ())
    assert await claims.resolve(record) == value
    assert _objects(tmp_path) == []


async def test_what_is_large_comes_back_as_it_was(claims: Claims, tmp_path: Path):
    record = await _record(claims, LARGE)
    assert len(record.raw_value or b"") < 300
    assert await claims.resolve(record) == LARGE
    await claims.save(record, tmp_path / "scan")
    assert (tmp_path / "scan").read_bytes() == LARGE


async def test_the_same_content_of_a_day_is_one_object(claims: Claims, tmp_path: Path, clock: ShiftedClock):
    first = await _record(claims, LARGE)
    assert (await _record(claims, LARGE)).raw_value == first.raw_value
    assert len(_objects(tmp_path)) == 1
    clock.days = 1
    await _record(claims, LARGE)
    assert len(_objects(tmp_path)) == 2


async def test_missing_and_damaged_are_told_apart(claims: Claims, tmp_path: Path):
    record = await _record(claims, LARGE)
    (path,) = _objects(tmp_path)
    path.write_bytes(LARGE[:-1] + b"!")
    with pytest.raises(ClaimDamagedError, match="the object was changed"):
        await claims.resolve(record)
    with pytest.raises(ClaimDamagedError, match="the object was changed"):
        await claims.save(record, tmp_path / "scan")
    path.write_bytes(LARGE[:5000])
    with pytest.raises(ClaimDamagedError, match="has 5000 bytes, and 10240000 were written"):
        await claims.resolve(record)
    path.unlink()
    with pytest.raises(ClaimMissingError, match="it was deleted before its record"):
        await claims.resolve(record)
    assert not (tmp_path / "scan").exists()
    assert not (tmp_path / "scan.part").exists()


async def test_a_store_that_is_away_is_neither(claims: Claims):
    record = await _record(claims, LARGE)
    (port,) = free_ports(1)
    nobody = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "x",
        "access_key_id": "x",
        "secret_access_key": "x",
    }
    quick = GuardLimits(tries=2, backoff_ms=1)
    async with Claims("s3://bucket/claims", nobody, threshold_bytes=1000, limits=quick) as away:
        with pytest.raises(StoreError):
            await away.resolve(record)
        with pytest.raises(StoreError):
            await away.check_in("scans", LARGE)


@pytest.mark.parametrize("value", [b"", b"{", b'{"object": "a"}', b'{"object": "../x", "bytes": 1, "sha256": "0"}'])
async def test_a_reference_that_nobody_can_read_is_damage(claims: Claims, value: bytes):
    record = Message(7, 0, None, value, (("tailrace.claim", b"1"),), Source("scans", 0, Bytes(), Bytes()))
    with pytest.raises(ClaimDamagedError):
        await claims.resolve(record)


async def test_days_go_after_retention_and_margin_and_no_topic_takes_another_ones(
    claims: Claims, tmp_path: Path, clock: ShiftedClock
):
    await _record(claims, LARGE)
    await _record(claims, LARGE, topic="letters")
    clock.days = 4
    young = await _record(claims, LARGE)
    assert await claims.sweep("scans", retention_ms=5 * DAY_MS) == 0
    clock.days = 6
    assert await claims.sweep("scans", retention_ms=3 * DAY_MS) == 1
    assert await claims.resolve(young) == LARGE
    assert len(_objects(tmp_path)) == 2


async def test_a_move_takes_the_object_along(claims: Claims, clock: ShiftedClock):
    record = await _record(claims, LARGE)
    copied = record._replace(raw_value=await claims.move("scans.dlq", record.raw_value, record.headers))
    clock.days = 30
    assert await claims.sweep("scans", retention_ms=DAY_MS) == 1
    assert await claims.resolve(copied) == LARGE
    assert await claims.move("scans.dlq", b"small", ()) == b"small"


async def test_a_compacted_topic_keeps_what_it_refers_to(claims: Claims, clock: ShiftedClock, tmp_path: Path):
    kept, gone = await _record(claims, LARGE), await _record(claims, LARGE + b"old")
    clock.days = 30
    young = await _record(claims, LARGE + b"on its way")

    async def topic() -> AsyncIterator[Message]:
        yield kept

    assert await claims.sweep_unreferenced("scans", topic()) == 1
    assert await claims.resolve(kept) == LARGE
    assert await claims.resolve(young) == LARGE + b"on its way"
    with pytest.raises(ClaimMissingError):
        await claims.resolve(gone)
