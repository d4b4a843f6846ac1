"""The ports: everything the broker asks of the world, as Protocols.

`Broker(config, ports)` is the same code in two worlds: `real/` talks to the kernel, `sim/` is deterministic. No
third implementation exists and nothing of ours is mocked. Whatever may block (sync, cold reads, folder syncs) is
called through Background, never on the loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from tailrace.model.security import CertificateFacts, Ending, TlsSettings

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview


class Clock(Protocol):
    def monotonic_ms(self) -> float:
        """Never goes back; only differences mean anything."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""

    def note_look(self) -> None:
        """The loop does its rounds: told several times a second by who runs it."""

    def looked_ms(self) -> float:
        """What is read from a socket now came after this moment of the monotonic clock."""

    def patient_ms(self) -> float:
        """The monotonic time without that in which the loop was held up: for what others have to do in time."""


class Random(Protocol):
    def random(self) -> float: ...

    def randrange(self, stop: int) -> int: ...

    def uuid(self) -> bytes:
        """16 random bytes (version 4)."""


class File(Protocol):
    """An open file. It stays readable while anyone holds it, whatever becomes of its name; dropping the last
    reference closes it. Every method raises OSError when the device does."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The end of the file; known without a system call."""

    def append(self, views: Sequence[Bytes]) -> None:
        """Writes all the views at the end, in order. If it raises, a part may have been written and `size` tells
        how much: the caller truncates. Of several handles on a file one appends, and only that one knows its size."""

    def read(self, position: int, size: int) -> bytes:
        """May block on the device. Short only at the end of the file."""

    def read_once(self, position: int, size: int) -> bytes:
        """As `read`, for what nobody will read again soon: what was not in memory before is not kept there."""

    def is_resident(self, position: int, size: int) -> bool:
        """Whether reading there would be served from memory. A cheap probe, never blocks."""

    def map(self) -> memoryview:
        """A read-only view of the whole content as it is now (memory-mapped in the real world)."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Blocks until everything written so far is on the device: Background only."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """`size` bytes of a file from `position`; goes to a socket without passing through Python."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are plain strings with '/'. Every method raises OSError as the kernel would."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and appending. With `create` a missing file is made; without, FileNotFoundError."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_folder(self, path: str) -> None:
        """With its parents; fine if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`."""

    def remove(self, path: str) -> None:
        """A file."""

    def remove_folder(self, path: str) -> None:
        """A folder with all it holds."""

    def read(self, path: str) -> bytes:
        """A whole small file."""

    def replace(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        """Atomically replaces a small file: a temporary beside it, synced, then renamed. A reader sees the old or
        the new content, after a crash too. `sync=False` skips the syncs (survives a killed process, not a power
        loss)."""

    def sync_folder(self, path: str) -> None:
        """Makes names created, renamed or removed in a folder durable."""

    def lock(self, path: str) -> Lock:
        """Exclusive among processes, gone with the process. Raises BlockingIOError if another holds it."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def boot_id(self) -> str:
        """Changes when the kernel restarts: the same id means that the page cache survived."""


class UntrustedPeerError(OSError):
    """A peer was reached, and one side does not trust the other: trying again changes nothing. The text has the cause
    and the remedy."""


class Stream(Protocol):
    """One connection, raw and non-blocking. Framing is ours and lives in broker.connection and
    client.connection."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    def recv_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 at the end of the stream. BlockingIOError if there is nothing now, OSError if it
        broke."""

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        """Takes a prefix of the parts, as much as fits now (perhaps 0), and returns its size in bytes. File slices
        go by sendfile. OSError if it broke, or if a slice's file has become shorter."""

    def left_bytes(self) -> int | None:
        """What can still be received, at most, if the other side has closed; None while more may come. For those who do
        not receive now, and so would not meet the end."""

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Calls back on the loop whenever there is something to receive; None stops it."""

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Calls back on the loop whenever there is room to send; None stops it."""

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Dialer(Protocol):
    """The side of a network that calls."""

    async def connect(self, host: str, port: int) -> Stream:
        """Raises OSError, among them UntrustedPeerError."""


class Network(Dialer, Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], None],
        *,
        backlog: int = 128,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
    ) -> Listener:
        """Port 0 picks a free one. `backlog` connections may wait to be accepted; a buffer size of -1 is the
        kernel's choice."""


class Want(Enum):
    """What a step of a handshake waits for."""

    NOTHING = "it is done"
    READ = "something to receive"
    WRITE = "room to send"


class SecureStream(Stream, Protocol):
    """The side of a TLS connection that listened. Nothing is received or sent before the handshake is done."""

    @property
    def subject(self) -> str | None:
        """Of the peer's certificate, which was verified, as Java writes it (RFC 2253); None if it showed none."""

    def shake_hands(self) -> Want:
        """As far as it goes now. Takes about half a millisecond: Background only, and nobody else touches the stream
        meanwhile. Raises UntrustedPeerError, or another OSError if the peer is gone."""


class TlsIdentity(Protocol):
    """A certificate with its key and who is trusted, as files or settings had it when it was read."""

    @property
    def own(self) -> CertificateFacts | None: ...

    @property
    def endings(self) -> Sequence[Ending]:
        """Of all that was read: own certificates, authorities, revocation lists."""


class Tls(Protocol):
    """Only who made an identity can use it."""

    def read_identity(self, settings: TlsSettings, *, listens: bool) -> TlsIdentity:
        """May block: Background only. Raises KafkaError INVALID_CONFIG with cause and remedy."""

    def check_terms(self, server: Any, client: Any, host: str) -> None:
        """Raises KafkaError INVALID_CONFIG if whoever has the one identity could not call who has the other by that
        name. Background only."""

    def stamp(self, settings: TlsSettings) -> object:
        """Changes when the files do that an identity is read from. May block: Background only."""

    def accept(self, stream: Stream, identity: Any) -> SecureStream:
        """Takes over a stream that was accepted, before anything is received from it."""

    def dialer(self, below: Dialer, identity: Any) -> Dialer:
        """Connects as `below` does, by TLS."""


class WebRefusalError(OSError):
    """A server was reached, and does not answer as it should: trying again at once changes nothing. The text has the
    cause."""

    status: int | None = None  # What it answered, if that was HTTP and not 200.


@dataclass(frozen=True, slots=True)
class WebQuestion:
    url: str  # Of https or http, without a user in it.
    timeout_ms: int
    answer_max_bytes: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: bytes | None = field(default=None, repr=False)  # POST, if there is one.
    content_type: str = "application/x-www-form-urlencoded"  # Of the form.
    tls: TlsSettings | None = None  # None: the authorities that the machine trusts.


class Web(Protocol):
    """HTTP, to those who issue tokens, and to collectors of metrics."""

    def ask(self, question: WebQuestion) -> bytes:
        """The body of an answer 200. Follows redirects within the same host alone. Blocks: Background only. Raises
        WebRefusalError, or another OSError if nobody answers."""


class StoreError(OSError):
    """An object store did not do what it was asked; the text has the cause and never a secret."""


class StoreAwayError(StoreError):
    """It cannot be reached, is too slow, or says that something is wrong with itself: it may work a little later. What
    it was asked to change may have been changed."""


class StoreRefusalError(StoreError):
    """It was reached and says no (a wrong key, a bucket that is not there): trying again changes nothing. The text has
    the remedy."""


class NoObjectError(StoreError):
    """There is no object of that name, or none yet."""


class ObjectFacts(NamedTuple):
    name: str
    size_bytes: int
    modified_ms: int  # Milliseconds since 1970, by the store's clock.


class Objects(Protocol):
    """A store of whole objects, by names such as `a/b/c`. Stores differ in what they promise, so nothing may rest on
    more than this: an object that `put` has confirmed is found by `get` and `head` from then on, and nobody sees a part
    of one. A listing may lack what is new and have what is gone. A call that failed may have had its effect, at once or
    later. Every method raises StoreError, and may be cancelled, which returns at once."""

    async def put(self, name: str, parts: AsyncIterator[Bytes], size_bytes: int) -> None:
        """All the parts in order, `size_bytes` in sum, as one object. What `parts` raises comes out here, and then
        there is no object."""

    async def get(self, name: str, start: int, end: int) -> Bytes:
        """Of an object that has a byte at `start`. Short at the end of the object. NoObjectError."""

    async def head(self, name: str) -> ObjectFacts:
        """NoObjectError."""

    def list(self, prefix: str) -> AsyncIterator[Sequence[ObjectFacts]]:
        """All objects whose names begin with the folder `prefix`, piece by piece, in no order."""

    async def delete(self, names: Sequence[str]) -> None:
        """One that is not there is no error."""


class StoreLimits(NamedTuple):
    request_timeout_ms: int = 30_000  # Of one request of HTTP: a part of a large object is one.
    part_bytes: int = 8 << 20  # What is larger goes in parts of this size. S3 takes 10,000 of them, 5 MiB or more each.
    parts_in_flight: int = 2  # Of one object, each in memory.


class ObjectStores(Protocol):
    async def open(self, url: str, options: Mapping[str, str], limits: StoreLimits) -> Objects:
        """`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///folder`, with options as the
        store calls them. Asks the store nothing. Raises KafkaError INVALID_CONFIG with cause and remedy."""


class RemotePart(Protocol):
    """What remote storage has of a partition, which goes before its local log. None of a topic without it."""

    log_start_offset: int  # Of the whole: never above where the local log begins.

    def advance_start(self, offset: int) -> None:
        """As of a log: what lies before `offset` is not read any more, here or there."""

    def expire_local(self, *, now_ms: int, high_watermark: int) -> int:
        """As `log.retention.expire_segments`, of what lies in the store too."""

    async def store_start(self) -> None:
        """Where it begins is on the disk when this returns. Raises KafkaError."""

    async def find_start(self, leader_start_offset: int, epoch_before: int) -> RemoteStart:
        """Where a follower may begin that has less than the leader's local log, whose last record before it is of
        `epoch_before`. Raises KafkaError, StorageError or StoreError."""


class RemoteStart(NamedTuple):
    """Where a log goes on from a copy of a segment, and what that tells of the log before."""

    offset: int
    epochs: tuple[tuple[int, int], ...]
    producers: bytes  # Kafka's snapshot of them at that offset.


class Background(Protocol):
    """Helper threads for calls that block or release the GIL. They decide nothing."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]: ...

    def close(self) -> None:
        """Waits for what is under way, and takes no more."""


class Buffer(Protocol):
    """What is used of a bytearray by those who receive into one."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, part: slice, /) -> bytes | bytearray: ...

    def startswith(self, prefix: bytes, start: int, /) -> bool: ...


class Memory(Protocol):
    def allocate(self, size_bytes: int) -> Buffer:
        """Zeroes. A large piece, of which only what is written to takes memory, and which is given back to the system
        as soon as nobody refers to it. OSError if there is none."""

    def trim(self) -> None:
        """Gives to the system what the allocator keeps and nobody uses. May take milliseconds."""


class HeapMemory:
    """Without a system to give anything back to: tests and the simulator."""

    def allocate(self, size_bytes: int) -> Buffer:
        return bytearray(size_bytes)

    def trim(self) -> None:
        """Nothing is kept."""


class Usage(NamedTuple):
    """What a process has taken of its machine. None where the system does not tell."""

    cpu_seconds: float
    resident_bytes: int | None = None
    virtual_bytes: int | None = None
    open_files: int | None = None
    open_files_max: int | None = None
    # What went to devices and came from them, not what the page cache took and gave.
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None


class Process(Protocol):
    def usage(self) -> Usage | None: ...


class NoProcess:
    """Nodes that share a process with others, or have none: tests and the simulator."""

    def usage(self) -> Usage | None:
        return None


@dataclass(frozen=True, slots=True)
class Ports:
    clock: Clock
    random: Random
    disk: Disk
    network: Network
    background: Background
    memory: Memory = field(default_factory=HeapMemory)
    process: Process = field(default_factory=NoProcess)
    # None where nobody uses them.
    tls: Tls | None = None
    web: Web | None = None
    objects: ObjectStores | None = None
