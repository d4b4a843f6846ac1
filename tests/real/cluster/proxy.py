"""TCP proxies between the nodes of a cluster, so that the network between two of them can be cut and healed.

Each node has a proxy in front of each listener that other nodes use. A proxy tells who connects by the process that
owns the other end of the socket (/proc), so that one link can be cut while the others work: no special rights are
needed, unlike for network namespaces. A cut link swallows everything in both directions: connections stay open and
nothing arrives, as when a cable is pulled. Healing closes what was swallowed, as the kernel would in the end.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable


class Network:
    """All proxies, on an event loop in a thread. `owner_of(process_id)` gives the node that a process is."""

    def __init__(self, owner_of: Callable[[int], int | None], process_ids: Callable[[], list[int]]) -> None:
        self._owner_of = owner_of
        self._process_ids = process_ids
        self._cut: set[frozenset[int]] = set()
        self._links: dict[asyncio.Task[None], frozenset[int]] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def proxy(self, node: int, port: int, target_port: int) -> None:
        """From now on what connects to `port` reaches `target_port` of the node, as long as the link is there."""
        self._run(self._listen(node, port, target_port))

    def cut(self, one: int, other: int) -> None:
        self._loop.call_soon_threadsafe(self._cut.add, frozenset((one, other)))

    def cut_off(self, node: int, others: list[int]) -> None:
        for other in others:
            self.cut(node, other)

    def heal(self) -> None:
        self._run(self._heal())

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self, node: int, port: int, target_port: int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            peer_port = writer.get_extra_info("peername")[1]
            source = self._owner_of_port(peer_port, port)
            self._links[task] = frozenset((node, source if source is not None else -1))
            try:
                await self._forward(reader, writer, target_port, self._links[task])
            except asyncio.CancelledError:
                # Healed or closed; asyncio takes a cancelled task for a failure. What nobody reads would hold it open.
                writer.transport.abort()
            finally:
                del self._links[task]
                writer.close()

        self._servers.append(await asyncio.start_server(connected, "127.0.0.1", port))

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int, link: frozenset[int]
    ) -> None:
        while link in self._cut:
            await asyncio.sleep(0.01)
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target_port)
        except OSError:
            return
        pipes = [
            asyncio.ensure_future(self._pipe(reader, other_writer, link)),
            asyncio.ensure_future(self._pipe(other_reader, writer, link)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            other_writer.transport.abort()
            raise
        finally:
            other_writer.close()  # First: whoever closes everything may cancel the wait below too.
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: frozenset[int]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if link in self._cut:
                    # Lost on the way. Whatever follows would have a hole before it: the stream is over, silently.
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()
        while link in self._cut:
            await asyncio.sleep(0.01)  # The end of a connection does not get through either.

    async def _heal(self) -> None:
        cut, self._cut = self._cut, set()
        for task, link in list(self._links.items()):
            if link in cut:
                task.cancel()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        while self._links:
            for task in self._links:
                task.cancel()
            await asyncio.gather(*list(self._links), return_exceptions=True)
        # The turns in which sockets are closed.
        await asyncio.sleep(0.05)

    def _owner_of_port(self, source_port: int, proxy_port: int) -> int | None:
        inode = _inode_of(source_port, proxy_port)
        for process_id in self._process_ids():
            if inode is not None and inode in _socket_inodes(process_id):
                return self._owner_of(process_id)
        return None


def _inode_of(source_port: int, destination_port: int) -> str | None:
    with open("/proc/net/tcp") as table:
        next(table)
        for line in table:
            fields = line.split()
            if fields[1].endswith(f":{source_port:04X}") and fields[2].endswith(f":{destination_port:04X}"):
                return fields[9]
    return None


def _socket_inodes(process_id: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{process_id}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{process_id}/fd/{descriptor}")
                if target.startswith("socket:["):
                    found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found
