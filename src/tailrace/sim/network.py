"""The simulated Network: hosts, the links between them, and connections over these, in the manner of TCP.

- Bytes of a connection arrive in order, once, or not at all; when and in which pieces is up to chance. `send` may take
  less than it is given and `recv_into` give less than there is, as sockets do.
- A link has one direction. While it is cut, what was sent over it is held, as TCP sends again until it gets through:
  after healing, requests of long ago arrive. What the other side reads is acknowledged over the way back, so that a
  cut in one direction soon stops the other one too. Nobody is told of a cut.
- The death of a process resets its connections. The death of a host tells nobody; once it is up again, it answers
  what it does not know with a reset.
- A reset may come in the middle of what is being sent: the first part of it arrives.

Faults are set from outside: `cut`, `slow`, `mend`, `reset`. Holds no broker logic and knows nothing of frames.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context

from tailrace.model.ports import Bytes, FileSlice, Listener, Stream
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.random import SimRandom

# Bytes that may be under way in one direction of a connection.
_WINDOW_BYTES = 256 * 1024
_LATENCY_MS = 0.2
_JITTER_MS = 0.6
# Moments are rounded to this: messages that arrive together are taken in one turn, as with a real loop.
_TICK_SECONDS = 0.0001
_SHORT_SHARE = 0.03  # the share of sends and receives that do less than they could
_CONNECT_RETRY_SECONDS = 1.0
_CONNECT_RETRIES_MAX = 6
_FIRST_FREE_PORT = 20_000


class Link:
    """One direction between two hosts."""

    __slots__ = ("bytes_per_ms", "cuts", "held", "is_refusing", "latency_ms")

    def __init__(self) -> None:
        self.is_refusing = False  # Whoever wants to connect is told that nobody listens there.
        self.cuts = 0  # Several faults may have cut it; all of them have to end.
        self.latency_ms = _LATENCY_MS
        self.bytes_per_ms = float("inf")
        self.held: list[Callable[[], None]] = []  # What arrives once it is healed. Bounded by the windows.

    @property
    def is_cut(self) -> bool:
        return self.cuts > 0


class SimNetwork:
    """All hosts. `port(host, process)` is the Network port of one process; `on_arrival` hears of all that arrives."""

    def __init__(self, loop: SimLoop, random: SimRandom) -> None:
        self.on_arrival: Callable[[str, str, int], None] = lambda _source, _target, _size: None
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.streams: dict[SimStream, None] = {}
        self._loop = loop
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._down: dict[str, None] = {}
        self._next_port = _FIRST_FREE_PORT

    def port(self, host: str, process: Process) -> ProcessNetwork:
        return ProcessNetwork(self, host, process)

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        """In this direction only."""
        if source != target:
            self.link(source, target).cuts += 1

    def mend(self, source: str, target: str) -> None:
        """One cut less; after the last one what was held arrives."""
        link = self.link(source, target)
        link.cuts = max(0, link.cuts - 1)
        if not link.cuts:
            held, link.held = link.held, []
            for arrive in held:
                self._loop.at(self.arrival(link, 0), arrive)

    def refuse(self, one: str, other: str) -> None:
        """Connections between the two break when they are next used, and new ones are refused, both ways: as by a
        firewall that says so."""
        for source, target in ((one, other), (other, one)):
            self.link(source, target).is_refusing = True
        for stream in self.streams:
            if {stream.host, stream.other.host} == {one, other}:
                self.reset(stream)

    def allow(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            self.link(source, target).is_refusing = False

    def heal(self) -> None:
        """Every link is whole and fast."""
        for (source, target), link in list(self._links.items()):
            link.cuts, link.is_refusing = 0, False
            self.mend(source, target)
            self.slow(source, target)

    def slow(
        self, source: str, target: str, *, latency_ms: float = _LATENCY_MS, bytes_per_ms: float = float("inf")
    ) -> None:
        link = self.link(source, target)
        link.latency_ms, link.bytes_per_ms = latency_ms, bytes_per_ms

    def reset(self, stream: SimStream) -> None:
        """The next thing that is sent on it arrives in part, and the connection is gone for both."""
        stream.is_doomed = True

    def is_up(self, host: str) -> bool:
        return host not in self._down

    def end_process(self, process: Process) -> None:
        """The kernel closes what a dead process had open."""
        for listener in [each for each in self.listeners.values() if each.process is process]:
            listener.close()
        for stream in [each for each in self.streams if each.process is process]:
            stream.abort()

    def end_host(self, host: str) -> None:
        """Nobody is told."""
        self._down[host] = None
        for listener in [each for each in self.listeners.values() if each.host == host]:
            listener.close()
        for stream in [each for each in self.streams if each.host == host]:
            stream.vanish()

    def begin_host(self, host: str) -> None:
        self._down.pop(host, None)

    # ---- moving bytes

    def arrival(self, link: Link, size: int) -> float:
        """When something that is sent now over a link gets there."""
        delay_ms = link.latency_ms + self._random.random() * _JITTER_MS + size / link.bytes_per_ms
        return round((self._loop.now + delay_ms / 1000) / _TICK_SECONDS) * _TICK_SECONDS

    def carry(self, source: str, target: str, size: int, after: float, arrive: Callable[[], None]) -> float:
        """Lets something arrive at a host, not before `after`; gives the time."""
        link = self.link(source, target)
        when = max(after, self.arrival(link, size))

        def get_there() -> None:
            if link.is_cut:
                link.held.append(get_there)
            elif self.is_up(target):
                self.on_arrival(source, target, size)
                arrive()

        self._loop.at(when, get_there)
        return when

    def shorten(self, size: int) -> int:
        """What a single call does of so many bytes."""
        if size > 1 and self._random.random() < _SHORT_SHARE:
            return 1 + self._random.randrange(size - 1)
        return size

    def part_of(self, size: int) -> int:
        return self._random.randrange(size + 1)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class ProcessNetwork:
    """The Network port."""

    def __init__(self, network: SimNetwork, host: str, process: Process) -> None:
        self._network = network
        self._host = host
        self._process = process

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], None],
        *,
        backlog: int = 128,  # noqa: ARG002 - the crowds that it is for are tested with real sockets
        receive_buffer_bytes: int = -1,  # noqa: ARG002
        send_buffer_bytes: int = -1,  # noqa: ARG002
    ) -> Listener:
        if host not in (self._host, "0.0.0.0", ""):  # noqa: S104 - a setting of the simulated node
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host}: this host is {self._host}")
        number = port or self._network.free_port()
        if (self._host, number) in self._network.listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{number} is in use")
        return SimListener(self._network, self._host, number, self._process, accept)

    async def connect(self, host: str, port: int) -> Stream:
        network = self._network
        there, back = network.link(self._host, host), network.link(host, self._host)
        for attempt in range(_CONNECT_RETRIES_MAX):
            await self._travel(there, back)
            if not there.is_cut and not back.is_cut and network.is_up(host):
                break
            await asyncio.sleep(_CONNECT_RETRY_SECONDS * 2**attempt)
        else:
            raise TimeoutError(errno.ETIMEDOUT, "nobody answers", host)
        listener = network.listeners.get((host, port))
        if listener is None or there.is_refusing:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused", host)
        ours = SimStream(network, self._process, self._host, f"{host}:{port}")
        theirs = SimStream(network, listener.process, host, f"{self._host}:{network.free_port()}")
        ours.other, theirs.other = theirs, ours
        listener.accept(theirs)
        return ours

    async def _travel(self, there: Link, back: Link) -> None:
        now = asyncio.get_running_loop().time()
        arrives = self._network.arrival(there, 0) + back.latency_ms / 1000 - now
        await asyncio.sleep(max(0.0, arrives))


class SimListener:
    def __init__(
        self, network: SimNetwork, host: str, port: int, process: Process, accept: Callable[[Stream], None]
    ) -> None:
        self.host = host
        self.process = process
        self._network = network
        self._port = port
        self._accept = accept
        self._context = copy_context()
        self._is_open = True
        network.listeners[host, port] = self

    @property
    def port(self) -> int:
        return self._port

    def accept(self, stream: SimStream) -> None:
        """The kernel accepts at once, the process when it gets to it."""
        asyncio.get_running_loop().call_soon(self._hand_over, stream, context=self._context.copy())

    def _hand_over(self, stream: SimStream) -> None:
        if self._is_open:
            self._accept(stream)
        else:
            stream.abort()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._network.listeners.pop((self.host, self._port), None)


class SimStream:
    """One end of a connection. Its callbacks run in the process that watches, every turn while there is cause."""

    def __init__(self, network: SimNetwork, process: Process, host: str, peer: str) -> None:
        self.process = process
        self.host = host
        self.other: SimStream
        self.is_doomed = False
        self._network = network
        self._peer = peer
        self._inbound: deque[Callable[[], None]] = deque()  # On the way, in order.
        self._received: deque[memoryview] = deque()
        self._failure: str | None = None
        self._has_ended = False  # The other side sends no more.
        self._is_closed = False
        self._unread_by_other = 0  # Sent and not yet read: bounded by the window.
        self._last_arrival = 0.0
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._read_is_due = False
        self._write_is_due = False
        self._loop = asyncio.get_running_loop()
        network.streams[self] = None

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_open(self) -> bool:
        return not self._is_closed and self._failure is None

    # ---- the port

    def recv_into(self, buffer: memoryview) -> int:
        if self._failure is not None:
            raise ConnectionResetError(errno.ECONNRESET, self._failure, self._peer)
        if not self._received:
            if self._has_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing to receive")
        wanted = self._network.shorten(len(buffer))
        size = 0
        while self._received and size < wanted:
            piece = self._received[0]
            taken = min(len(piece), wanted - size)
            buffer[size : size + taken] = piece[:taken]
            size += taken
            if taken == len(piece):
                self._received.popleft()
            else:
                self._received[0] = piece[taken:]
        self._acknowledge(size)
        return size

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        if self._failure is not None or self._is_closed:
            raise ConnectionResetError(errno.ECONNRESET, self._failure or "it is closed", self._peer)
        room = _WINDOW_BYTES - self._unread_by_other
        wanted = self._network.shorten(min(room, sum(map(len, parts))))
        pieces: list[bytes] = []
        size = 0
        for part in parts:
            taken = min(len(part), wanted - size)
            if taken <= 0:
                break
            pieces.append(_bytes_of(part, taken))
            size += taken
        if size:
            self._transmit(b"".join(pieces))
        return size

    def left_bytes(self) -> int | None:
        if self._failure is not None:
            return 0
        return sum(map(len, self._received)) if self._has_ended else None

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._on_readable = callback
        self._notice_readable()

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self._on_writable = callback
        self._notice_writable()

    def close(self) -> None:
        if self._is_closed:
            return
        had_unread = bool(self._received)
        was_open = self._leave()
        if was_open:
            end = self.other._take_reset if had_unread else self.other._take_end
            self._carry(0, end)

    # ---- ends that the process does not choose

    def abort(self) -> None:
        """Its process is dead: what was sent before arrives, then a reset."""
        if self._leave():
            self._carry(0, self.other._take_reset)

    def vanish(self) -> None:
        self._leave()

    def _leave(self) -> bool:
        was_open = self.is_open
        self._is_closed = True
        self._on_readable = self._on_writable = None
        self._received.clear()
        self._network.streams.pop(self, None)
        return was_open

    # ---- what arrives

    def _transmit(self, data: bytes) -> None:
        if self.is_doomed:
            data = data[: self._network.part_of(len(data))]
        self._unread_by_other += len(data)
        self._carry(len(data), lambda: self.other._take(data))
        if self.is_doomed:
            self._carry(0, self.other._take_reset)
            self._take_reset()

    def _carry(self, size: int, arrive: Callable[[], None]) -> None:
        """In order after what was sent before, even if a cut link is healed in between."""
        self.other._inbound.append(arrive)
        self._last_arrival = self._network.carry(
            self.host, self.other.host, size, self._last_arrival, self.other._take_next
        )

    def _take_next(self) -> None:
        self._inbound.popleft()()

    def _take(self, data: bytes) -> None:
        if self.is_open:
            self._received.append(memoryview(data))
            self._notice_readable()
        elif self.other.is_open:
            self._carry(0, self.other._take_reset)  # Nobody knows this connection here.

    def _take_end(self) -> None:
        self._has_ended = True
        self._notice_readable()

    def _take_reset(self) -> None:
        if self.is_open:
            self._failure = "connection reset by peer"
            self._received.clear()
            self._network.streams.pop(self, None)
            self._notice_readable()
            self._notice_writable()

    def _acknowledge(self, size: int) -> None:
        """What was read makes room for more, over the way back."""
        link = self._network.link(self.host, self.other.host)
        if link.is_cut:
            link.held.append(lambda: self.other._gain_room(size))
        else:
            self.other._gain_room(size)

    def _gain_room(self, size: int) -> None:
        self._unread_by_other -= size
        self._notice_writable()

    # ---- telling the process, as often as a selector would

    def _notice_readable(self) -> None:
        has_cause = self._received or self._has_ended or self._failure is not None
        if self._on_readable is not None and has_cause and not self._read_is_due:
            self._read_is_due = True
            self._loop.call_soon(self._tell_readable, context=self.process.context())

    def _tell_readable(self) -> None:
        self._read_is_due = False
        if self._on_readable is not None:
            self._on_readable()
            self._notice_readable()

    def _notice_writable(self) -> None:
        has_cause = self._unread_by_other < _WINDOW_BYTES or self._failure is not None
        if self._on_writable is not None and has_cause and not self._write_is_due:
            self._write_is_due = True
            self._loop.call_soon(self._tell_writable, context=self.process.context())

    def _tell_writable(self) -> None:
        self._write_is_due = False
        if self._on_writable is not None:
            self._on_writable()
            self._notice_writable()


def _bytes_of(part: Bytes | FileSlice, size: int) -> bytes:
    if not isinstance(part, FileSlice):
        return bytes(part[:size])
    data = part.file.read(part.position, size)
    if len(data) < size:
        raise OSError(errno.EIO, f"the file ends before position {part.position + size}", part.file.path)
    return data
