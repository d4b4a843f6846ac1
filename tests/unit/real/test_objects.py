"""The real Objects against a folder and an S3 server that others wrote (moto): the same contract, and clear errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest

from tailrace.model.errors import KafkaError
from tailrace.model.ports import Bytes, NoObjectError, StoreAwayError, StoreLimits, StoreRefusalError
from tailrace.real.objects.port import RealObjects, RealObjectStores

LIMITS = StoreLimits(request_timeout_ms=10_000, part_bytes=5 << 20)
SECRET = "a-secret-that-nobody-may-see"
START_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto with a bucket `tier`."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                _make_bucket(address)
                break
            except OSError:
                assert time.monotonic() < deadline, "moto does not answer"
                time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()
        for stream in (server.stdout, server.stdin):
            if stream is not None:
                stream.close()


# Port 0 would be its own choice, but then it does not say which: so it is asked for here.
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def _make_bucket(address: str) -> None:
    authorization = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
    request = urllib.request.Request(
        f"{address}/tier", data=b"", method="PUT", headers={"Authorization": authorization}
    )
    urllib.request.urlopen(request, timeout=5).close()


def _unfinished_uploads(address: str) -> bytes:
    with urllib.request.urlopen(f"{address}/tier?uploads", timeout=5) as answer:
        return bytes(answer.read())


def options(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "key", "secret_access_key": SECRET}


@pytest.fixture(params=["folder", "s3"])
async def objects(request, tmp_path) -> RealObjects:
    if request.param == "folder":
        return await RealObjectStores().open(f"file://{tmp_path}/tier", {}, LIMITS)
    endpoint = request.getfixturevalue("endpoint")
    return await RealObjectStores().open(f"s3://tier/{tmp_path.name}", options(endpoint), LIMITS)


async def pieces(*parts: bytes) -> AsyncIterator[Bytes]:
    for part in parts:
        yield part


async def put(objects: RealObjects, name: str, data: bytes) -> None:
    await objects.put(name, pieces(data), len(data))


async def names(objects: RealObjects, prefix: str) -> list[str]:
    return sorted([each.name async for piece in objects.list(prefix) for each in piece])


async def test_objects_are_put_read_listed_and_deleted(objects: RealObjects) -> None:
    before_ms = time.time() * 1000
    await put(objects, "a/one", b"0123456789")
    await put(objects, "a/b/two", b"x")
    await put(objects, "ab", b"y")
    assert bytes(await objects.get("a/one", 2, 5)) == b"234"
    assert bytes(await objects.get("a/one", 8, 500)) == b"89", "short at the end"
    facts = await objects.head("a/one")
    assert (facts.name, facts.size_bytes) == ("a/one", 10)
    assert abs(facts.modified_ms - before_ms) < 60_000
    assert await names(objects, "a") == ["a/b/two", "a/one"]
    assert await names(objects, "") == ["a/b/two", "a/one", "ab"]
    await objects.delete(["a/one", "never", "ab"])
    await objects.delete(["never"])
    assert await names(objects, "") == ["a/b/two"]
    for missing in (objects.head("a/one"), objects.get("a/one", 0, 1)):
        with pytest.raises(NoObjectError):
            await missing


async def test_a_large_object_goes_in_parts(objects: RealObjects) -> None:
    parts = [bytes([number]) * (3 << 20) for number in range(5)]
    await objects.put("large", pieces(*parts, b"end"), 15 * (1 << 20) + 3)
    assert (await objects.head("large")).size_bytes == 15 * (1 << 20) + 3
    assert bytes(await objects.get("large", (3 << 20) - 1, (3 << 20) + 1)) == b"\x00\x01"
    assert bytes(await objects.get("large", 15 << 20, (15 << 20) + 3)) == b"end"


async def test_an_upload_whose_source_fails_leaves_nothing(objects: RealObjects, request) -> None:
    async def failing() -> AsyncIterator[Bytes]:
        yield b"x" * (6 << 20)
        raise ValueError("the disk")

    with pytest.raises(ValueError, match="the disk"):
        await objects.put("a/failed", failing(), 20 << 20)
    with pytest.raises(StoreAwayError, match="1 bytes less"):
        await objects.put("a/short", pieces(b"123"), 4)
    assert await names(objects, "") == []


async def test_an_upload_that_is_cancelled_leaves_nothing_and_no_parts(objects: RealObjects, request) -> None:
    reached = asyncio.Event()

    async def slow() -> AsyncIterator[Bytes]:
        yield b"x" * (6 << 20)
        yield b"x" * (6 << 20)
        reached.set()
        await asyncio.sleep(600)

    upload = asyncio.create_task(objects.put("a/slow", slow(), 20 << 20))
    await asyncio.wait_for(reached.wait(), 30)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(upload, 5)
    for _ in range(200):  # Its parts are taken away in the background.
        if not objects._ending:
            break
        await asyncio.sleep(0.05)
    assert await names(objects, "") == []
    if "s3" in request.node.name:
        address = request.getfixturevalue("endpoint")
        assert b"<UploadId>" not in await asyncio.to_thread(_unfinished_uploads, address)


async def test_a_read_that_is_cancelled_returns_at_once() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(-1)
        finally:
            writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        objects = await RealObjectStores().open("s3://tier/x", options(f"http://127.0.0.1:{port}"), LIMITS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await objects.get("a", 0, 1)
    finally:
        server.close()
        await server.wait_closed()


async def test_a_missing_bucket_is_named(endpoint: str) -> None:
    objects = await RealObjectStores().open("s3://no-such-bucket/x", options(endpoint), LIMITS)
    with pytest.raises(StoreRefusalError, match=r"s3://no-such-bucket/x.*The bucket does not exist: make it"):
        await put(objects, "a", b"x")


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (403, StoreRefusalError, "Check the credentials"),
        (400, StoreRefusalError, "answers 400"),
        (503, StoreAwayError, "503"),
        (429, StoreAwayError, "429"),
    ],
)
async def test_answers_of_a_store_become_errors_without_secrets(status: int, error: type[OSError], text: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} Answer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        objects = await RealObjectStores().open("s3://tier/x", options(f"http://127.0.0.1:{port}"), LIMITS)
        with pytest.raises(error, match=text) as caught:
            await objects.get("a", 0, 10)
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        server.close()
        await server.wait_closed()


async def test_nobody_there_is_an_error_that_may_pass() -> None:
    objects = await RealObjectStores().open("s3://tier/x", options("http://127.0.0.1:9"), LIMITS)
    with pytest.raises(StoreAwayError, match="s3://tier/x: a cannot be read"):
        await objects.get("a", 0, 10)


@pytest.mark.parametrize(
    ("url", "given", "text"),
    [
        ("ftp://host/x", {}, "ftp://host/x is no address of a store: write s3://BUCKET"),
        ("bucket", {}, "is no address of a store"),
        ("s3://", {}, "names no bucket"),
        ("file://folder", {}, "three slashes"),
        ("file:///", {}, "names no folder"),
        (f"s3://user:{SECRET}@bucket/x", {}, "do not belong into the address"),
        (f"s3://bucket/x?key={SECRET}", {}, "do not belong into the address"),
        ("s3://bucket/x", {"nonsense": SECRET}, "rsm.config.nonsense is no setting of the store"),
        ("az://container/x", {}, "cannot be used: .*[Aa]ccount"),
        ("file:///tmp/x", {"region": "x"}, "a folder has no options: take away rsm.config.region"),
    ],
)
async def test_bad_addresses_are_refused_with_a_remedy(url: str, given: dict[str, str], text: str) -> None:
    with pytest.raises(KafkaError, match=text) as caught:
        await RealObjectStores().open(url, given, LIMITS)
    assert SECRET not in str(caught.value)


async def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(KafkaError, match=r"pip install 'tailrace\[tier\]'"):
        await RealObjectStores().open("s3://bucket/x", {}, LIMITS)


def test_no_import_of_the_package_before_a_store_is_opened() -> None:
    program = "import sys; import tailrace.real.ports; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
