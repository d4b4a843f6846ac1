"""Object stores that others wrote, as tests start them, and a way to them that fails.

Moto     a development server of S3, in Python: takes any key
S3Proxy  a server of S3 in Java that checks signatures
Way      in front of either: delay, 503, connections that are cut before or after the effect, a bound of the rate
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.nodes import free_ports

ACCESS_KEY = "key"
SECRET = "a-secret-that-nobody-may-see"
START_DEADLINE_S = 60.0
_HEAD_MAX_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16

# Port 0 would be its own choice, but then it does not say which: so it is asked for here.
_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def options(endpoint: str, secret: str = SECRET) -> dict[str, str]:
    """What a broker has as rsm.config.*"""
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": ACCESS_KEY, "secret_access_key": secret}


def settings(endpoint: str, url: str = "s3://tier/cluster") -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": url,
        **{f"rsm.config.{name}": value for name, value in options(endpoint).items()},
    }


@contextmanager
def moto() -> Iterator[str]:
    """Its address; it has a bucket `tier`."""
    server = subprocess.Popen(
        [sys.executable, "-c", _MOTO],
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


def _make_bucket(address: str) -> None:
    authorization = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
    request = urllib.request.Request(
        f"{address}/tier", data=b"", method="PUT", headers={"Authorization": authorization}
    )
    urllib.request.urlopen(request, timeout=5).close()


@contextmanager
def s3proxy(jars: Path, folder: Path) -> Iterator[str]:
    """Its address; it has a bucket `tier`, which is a folder below `folder`."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    (folder / "stored" / "tier").mkdir(parents=True)
    chosen = {
        "s3proxy.endpoint": address,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET,
        # Without it a deletion of several objects is answered 501.
        "s3proxy.ignore-unknown-headers": "true",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(folder / "stored"),
    }
    config = folder / "s3proxy.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    (jar,) = jars.glob("s3proxy-*.jar")
    log = folder / "s3proxy.log"
    with log.open("wb") as written:
        server = subprocess.Popen([*_JAVA, "-jar", jar, "--properties", config], stdout=written, stderr=written)
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while not _answers(address):
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, "S3Proxy does not answer"
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class Way:
    """From a port of its own to a store's, a request at a time on each connection. What happens on it may be changed at
    any time; `refused` and `cut` count what did."""

    def __init__(self, address: str, *, seed: int = 1) -> None:
        self.delay_s = 0.0
        self.error_share = 0.0  # 503, without effect.
        self.cut_share = 0.0  # The connection breaks before the effect, after it, or amid the answer.
        self.bytes_per_second = 0.0  # No bound.
        self.is_away = False  # Nobody answers.
        self.requests = self.refused = self.cut = 0
        self.uploads = 0  # Of segments, under way now.
        self.sent_bytes = 0
        self._target_port = int(address.rpartition(":")[2])
        self._random = random.Random(seed)
        self._free_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def heal(self) -> None:
        self.delay_s = self.error_share = self.cut_share = self.bytes_per_second = 0.0
        self.is_away = False

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may go on."""
        head = await reader.readuntil(b"\r\n\r\n")
        if self.is_away:
            return False
        self.requests += 1
        is_upload = head.startswith((b"PUT", b"POST")) and b".segment" in head.partition(b"\r\n")[0]
        self.uploads += is_upload
        try:
            return await self._answer(head, reader, writer)
        finally:
            self.uploads -= is_upload

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(self.delay_s)
        chance = self._random.random()
        if chance < self.error_share:
            self.refused += 1
            writer.write(b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return False
        cut = self._random.choice(("before", "after", "amid")) if chance > 1 - self.cut_share else ""
        self.cut += bool(cut)
        if cut == "before":
            return False
        return await self._forward(head, reader, writer, cut)

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: str) -> bool:
        store_reader, store_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            # A connection for each request: the end of the answer is the end of the connection.
            store_writer.write(head[:-2] + b"Connection: close\r\n\r\n")
            sending = asyncio.ensure_future(self._pipe(reader, store_writer, _length(head)))
            try:
                answer = await store_reader.readuntil(b"\r\n\r\n")
                if answer.startswith(b"HTTP/1.1 100"):
                    writer.write(answer)
                    answer = await store_reader.readuntil(b"\r\n\r\n")
                await sending
            finally:
                sending.cancel()
            if cut == "after":
                return False
            length = _length(answer)
            if cut == "amid":
                writer.write(answer)
                await self._pipe(store_reader, writer, max(0, length // 2))
                return False
            if length < 0 and not head.startswith(b"HEAD"):
                body = await store_reader.read(-1)
                writer.write(_closing(answer) + body)
                await writer.drain()
                return False
            writer.write(_kept(answer))
            await self._pipe(store_reader, writer, 0 if head.startswith(b"HEAD") else length)
            return True
        finally:
            store_writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
        left = max(size, 0)
        while left:
            data = await reader.read(min(left, _PIECE_BYTES))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            await self._pay(len(data))
            writer.write(data)
            self.sent_bytes += len(data)
            await writer.drain()
        with suppress(ConnectionError):
            await writer.drain()

    async def _pay(self, size: int) -> None:
        if self.bytes_per_second:
            now = self._loop.time()
            self._free_at = max(self._free_at, now) + size / self.bytes_per_second
            await asyncio.sleep(self._free_at - now)


def _length(head: bytes) -> int:
    """-1 where there is none."""
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else -1


def _kept(answer: bytes) -> bytes:
    return re.sub(rb"\r\nconnection: *[^\r]*", b"", answer, flags=re.IGNORECASE)


def _closing(answer: bytes) -> bytes:
    return _kept(answer)[:-2] + b"Connection: close\r\n\r\n"
