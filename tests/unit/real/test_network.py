"""Real sockets on loopback: what `send` takes, what watchers tell, and what a listener says when it cannot listen."""

import asyncio
import errno
import os
import socket
import sys

import pytest

from tailrace.model.ports import FileSlice, Stream
from tailrace.real.disk import RealDisk
from tailrace.real.network import RealNetwork, SocketStream


async def _connected() -> tuple[Stream, socket.socket]:
    """One of our streams and the plain socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return SocketStream(ours, asyncio.get_running_loop()), theirs


def _receive_all(theirs: socket.socket) -> bytes:
    chunks = []
    while True:
        try:
            chunk = theirs.recv(1 << 20)
        except BlockingIOError:
            return b"".join(chunks)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def _file(tmp_path, content: bytes):
    file = RealDisk().open(str(tmp_path / "data"), create=True)
    file.append([content])
    return file


async def test_send_keeps_the_order_of_bytes_and_file_slices(tmp_path):
    stream, theirs = await _connected()
    file = _file(tmp_path, b"0123456789")
    parts = [b"head", bytearray(b"er|"), FileSlice(file, 2, 3), memoryview(b"|tail"), FileSlice(file, 8, 2)]
    assert stream.send(parts) == 4 + 3 + 3 + 5 + 2
    assert _receive_all(theirs) == b"header|234|tail89"
    stream.close()
    theirs.close()


async def test_what_is_left_of_a_peer_that_has_closed_is_known_without_reading():
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    stream = SocketStream(listener.accept()[0], asyncio.get_running_loop())
    theirs.sendall(b"12345")
    assert stream.left_bytes() is None
    theirs.close()
    assert stream.left_bytes() == 5
    assert stream.recv_into(memoryview(bytearray(3))) == 3
    assert stream.left_bytes() == 2
    stream.close()
    listener.close()


async def test_send_takes_a_prefix_when_the_socket_is_full(tmp_path):
    stream, theirs = await _connected()
    content = os.urandom(3 << 20)
    parts = [content[:100], FileSlice(_file(tmp_path, content), 100, len(content) - 100)]
    taken = stream.send(parts)
    assert 100 < taken < len(content)
    assert stream.send(parts) == 0
    assert _receive_all(theirs) == content[:taken]
    stream.close()
    theirs.close()


async def test_send_takes_more_pieces_than_the_kernel_does_at_once():
    stream, theirs = await _connected()
    pieces = [bytes([number % 251]) * 60 for number in range(3000)]
    taken, received = 0, b""
    while taken < 3000 * 60:
        done = stream.send([b"".join(pieces)[taken:]] if taken else pieces)
        received += _receive_all(theirs)
        taken += done
    assert received == b"".join(pieces)
    stream.close()
    theirs.close()


async def test_a_slice_of_a_file_that_became_shorter_breaks_the_stream(tmp_path):
    stream, theirs = await _connected()
    file = _file(tmp_path, b"x" * 100)
    file.truncate(10)
    with pytest.raises(OSError, match="ends before position 20"):
        stream.send([FileSlice(file, 20, 50)])
    stream.close()
    theirs.close()


async def test_watchers_are_called_while_they_are_set():
    stream, theirs = await _connected()
    calls = []
    stream.watch_reads(lambda: calls.append("read"))
    theirs.send(b"a")
    await asyncio.sleep(0.01)
    stream.watch_reads(None)
    count = len(calls)
    assert count > 0
    await asyncio.sleep(0.01)
    assert len(calls) == count
    stream.watch_writes(lambda: calls.append("write"))
    await asyncio.sleep(0.01)
    assert "write" in calls
    stream.close()
    theirs.close()


async def test_receiving_tells_nothing_now_end_and_bytes_apart():
    stream, theirs = await _connected()
    buffer = memoryview(bytearray(16))
    with pytest.raises(BlockingIOError):
        stream.recv_into(buffer)
    theirs.send(b"abc")
    assert stream.recv_into(buffer) == 3
    assert bytes(buffer[:3]) == b"abc"
    theirs.close()
    assert stream.recv_into(buffer) == 0
    stream.close()
    stream.close()  # Once more does no harm.


async def test_listen_and_connect():
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0, accepted.set_result)
    assert listener.port > 0
    client = await network.connect("127.0.0.1", listener.port)
    server = await asyncio.wait_for(accepted, 5)
    assert client.peer == f"127.0.0.1:{listener.port}"
    assert server.peer.startswith("127.0.0.1:")
    for closable in (client, server, listener):
        closable.close()


async def test_buffers_and_backlog_are_as_asked_for():
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    network = RealNetwork()
    listener = await network.listen(
        "127.0.0.1", 0, accepted.set_result, backlog=7, receive_buffer_bytes=30_000, send_buffer_bytes=40_000
    )
    client = await network.connect("127.0.0.1", listener.port)
    server = await asyncio.wait_for(accepted, 5)
    # The kernel doubles what it is asked for, to have room for its own.
    assert server._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60_000
    assert server._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 80_000
    # tcpi_sacked, which is the backlog in a socket that listens.
    information = listener._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    assert int.from_bytes(information[28:32], sys.byteorder) == 7
    for closable in (client, server, listener):
        closable.close()


async def test_a_port_in_use_is_explained():
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0, lambda stream: stream.close())
    with pytest.raises(OSError, match="another process uses this port") as raised:
        await network.listen("127.0.0.1", listener.port, lambda stream: stream.close())
    assert raised.value.errno == errno.EADDRINUSE
    listener.close()


async def test_an_address_of_another_host_is_explained():
    with pytest.raises(OSError, match="no such address on this host"):
        await RealNetwork().listen("192.0.2.1", 0, lambda stream: stream.close())


async def test_nobody_listens():
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0, lambda stream: stream.close())
    port = listener.port
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await network.connect("127.0.0.1", port)


async def test_accepting_goes_on_when_the_process_had_no_file_handle_left():
    """The listener must neither spin nor die: it pauses, then takes what has waited."""
    import resource

    accepted: list[Stream] = []
    listener = await RealNetwork().listen("127.0.0.1", 0, accepted.append)
    waiting = socket.create_connection(("127.0.0.1", listener.port))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        await asyncio.sleep(0.05)
        assert accepted == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    deadline = asyncio.get_running_loop().time() + 5
    while not accepted and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
    assert len(accepted) == 1
    accepted[0].close()
    waiting.close()
    listener.close()
