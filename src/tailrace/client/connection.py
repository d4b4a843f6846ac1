"""One connection to one broker: requests out, responses in, in the same order.

Owns framing, correlation ids and the choice of a version for each request. Requests are pipelined: `call` sends at
once, up to `in_flight_max`, and waits for its own answer. A broker answers in the order of the requests, so an
answer that does not fit the oldest open request, one that is too large, or one that does not come in time ends the
connection and fails everything that waits on it.

Where the broker wants to know who asks, a `Login` answers, before anything else is sent and again when the session
grows old (KIP-368): then the next request waits until all before it are answered and the login is done.

Every failure is a KafkaError. NETWORK_EXCEPTION tells that the connection is gone; it is retriable, on a new one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple, Protocol, TypeVar, cast

from tailrace import __version__
from tailrace.client.frames import FrameReader
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.ports import Bytes, Dialer, FileSlice, Stream, UntrustedPeerError
from tailrace.wire.apis import api_name
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)

CLIENT_SOFTWARE = "tailrace"
# The newest version that every broker since 2.4 answers; an older one answers with the list of what it has.
_API_VERSIONS_VERSION = 3
# Received in one turn of the loop, so that a fast broker does not hold up other connections.
_RECEIVES_PER_TURN = 16
# The share of a session's life after which the login is repeated. Java's client does so after 85 % to 95 %.
_SESSION_SHARE = 0.85


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionLimits(NamedTuple):
    """The bounds of a connection."""

    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    # Requests without an answer; the next one waits.
    in_flight_max: int = 64
    # A fetch may exceed its own bound by one batch, which a topic may allow to be large.
    response_bytes_max: int = 256 * 1024 * 1024
    # The pause before what failed is tried again, and what it grows to.
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1000


def error_code(number: int) -> ErrorCode:
    """A newer broker may answer with a code that does not exist here yet."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class Login(Protocol):
    """Proves to a broker who this client is."""

    async def log_in(self, connection: Connection) -> int:
        """By `connection.ask`. How long the session lasts in ms, 0 if for ever; raises KafkaError."""


class _Pending(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    answer: asyncio.Future[Message]
    deadline: float  # On the loop's clock.
    timeout_ms: int


async def open_connection(
    dialer: Dialer,
    address: Address,
    *,
    client_id: str = CLIENT_SOFTWARE,
    limits: ConnectionLimits | None = None,
    login: Login | None = None,
) -> Connection:
    """Connects, asks the broker for its versions, and logs in. Raises KafkaError NETWORK_EXCEPTION with cause and
    remedy, or one that is not retriable if one side does not trust the other."""
    limits = limits or ConnectionLimits()
    try:
        async with asyncio.timeout(limits.connect_timeout_ms / 1000):
            stream = await dialer.connect(address.host, address.port)
    except TimeoutError:
        raise _unreachable(address, f"no answer within {limits.connect_timeout_ms} ms", "check the address") from None
    except ConnectionRefusedError:
        remedy = "is the broker running? start one with: tailrace up"
        raise _unreachable(address, "connection refused", remedy) from None
    except UntrustedPeerError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"no secure connection to {address}: {error}") from None
    except OSError as error:
        raise _unreachable(address, _cause(error), "check the address") from None
    connection = Connection(stream, address, client_id, limits, login)
    try:
        await connection.negotiate()
        await connection.log_in()
    except BaseException:
        connection.close()
        raise
    return connection


def _cause(error: OSError) -> str:
    return error.strerror.lower() if error.strerror else str(error)


def _unreachable(address: Address, cause: str, remedy: str) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot reach {address}: {cause}; {remedy}")


class Connection:
    """Made by `open_connection`."""

    def __init__(
        self,
        stream: Stream,
        address: Address,
        client_id: str,
        limits: ConnectionLimits,
        login: Login | None = None,
    ) -> None:
        self.address = address
        self._stream = stream
        self._client_id = client_id
        self._limits = limits
        self._login = login
        # On the loop's clock: when to log in again. Only one does it, before the request that it wants to send.
        self._next_login_at: float | None = None
        self._logging_in = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        # api key -> the versions that the broker serves
        self._served: dict[int, range] = {}
        # What the whole cluster can do, with the version that was decided: transaction.version, for one (KIP-584).
        self.finalized_features: dict[str, int] = {}
        self._slots = asyncio.Semaphore(limits.in_flight_max)
        # Oldest first, as the answers come. Bounded by the slots.
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._outbox: deque[Bytes] = deque()
        self._frames = FrameReader(limits.response_bytes_max)
        # One for all: a timer for each request would cost as much as sending it.
        self._timer: asyncio.TimerHandle | None = None
        self._failure: KafkaError | None = None
        self._has_answered = False  # Something other than ApiVersions, which needs no login.
        stream.watch_reads(self._on_readable)

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def has_room(self) -> bool:
        """Whether a call would be sent at once."""
        return self.is_open and not self._slots.locked()

    def version_of(self, request_type: type[Message], version_max: int | None = None) -> int:
        """The newest version of an API that both sides have. Raises KafkaError UNSUPPORTED_VERSION."""
        ours = request_type.versions
        if not ApiKey(request_type.api_key).is_advertised:
            return ours.stop - 1  # A broker that does not know it closes the connection.
        newest = ours.stop - 1 if version_max is None else version_max
        served = self._served.get(request_type.api_key, range(0))
        version = min(newest, served.stop - 1)
        if version < max(ours.start, served.start) or version not in served:
            theirs = f"{served.start}-{served.stop - 1}" if served else "none"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves {api_name(request_type.api_key)} in versions {theirs}, this client has "
                f"{ours.start}-{newest}: use a broker of Kafka 4 or of this release",
            )
        return version

    async def call(
        self,
        request: Message,
        response_type: type[R],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """`timeout_ms` defaults to the connection's; a request that makes the broker wait has to add that time."""
        version = self.version_of(type(request), version_max)
        if self._is_login_due():
            await self._log_in_again()
        async with self._slots:
            answer = await self._exchange(request, version, timeout_ms)
        assert isinstance(answer, response_type)
        return answer

    async def ask(self, request: Message, response_type: type[R]) -> R:
        """As `call`, and at once: for a login, while which nothing else is under way."""
        answer = await self._exchange(request, self.version_of(type(request)), None)
        assert isinstance(answer, response_type)
        return answer

    async def post(self, request: Message, *, version_max: int | None = None) -> None:
        """Sends a request that has no answer: a Produce with acks=0."""
        version = self.version_of(type(request), version_max)
        if self._is_login_due():
            await self._log_in_again()
        async with self._slots:
            self._check_is_open()
            self._transmit(self._encode(request, version)[1])

    def close(self) -> None:
        self._fail("it was closed on this side")

    async def negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE, client_software_version=__version__)
        answer = cast(ApiVersionsResponse, await self._exchange(request, _API_VERSIONS_VERSION, None))
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = cast(ApiVersionsResponse, await self._exchange(request, 0, None))
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), f"{self.address} does not tell which versions it serves")
        self._served = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
        self.finalized_features = {each.name: each.max_version_level for each in answer.finalized_features}

    # --- who asks

    async def log_in(self) -> None:
        """Nothing else may be under way."""
        if self._login is None:
            return
        try:
            session_lifetime_ms = await self._login.log_in(self)
        except BaseException:
            # The broker stands in the middle of a conversation that nobody will end.
            self._fail("the login was not completed")
            raise
        session_seconds = session_lifetime_ms / 1000
        self._next_login_at = self._loop.time() + session_seconds * _SESSION_SHARE if session_seconds > 0 else None

    def _is_login_due(self) -> bool:
        return self._next_login_at is not None and self._loop.time() >= self._next_login_at

    async def _log_in_again(self) -> None:
        """The broker takes nothing else in the middle of it, so it needs every slot."""
        async with self._logging_in:
            if not self._is_login_due():
                return
            held = 0
            try:
                for _ in range(self._limits.in_flight_max):
                    await self._slots.acquire()
                    held += 1
                await self.log_in()
            finally:
                for _ in range(held):
                    self._slots.release()

    # --- sending

    async def _exchange(self, request: Message, version: int, timeout_ms: int | None) -> Message:
        """Whoever calls it holds a slot, or all of them."""
        self._check_is_open()
        timeout = self._limits.request_timeout_ms if timeout_ms is None else timeout_ms
        answer: asyncio.Future[Message] = self._loop.create_future()
        correlation_id, frame = self._encode(request, version)
        deadline = self._loop.time() + timeout / 1000
        self._pending.append(_Pending(correlation_id, request.api_key, version, answer, deadline, timeout))
        self._transmit(frame)
        if self._timer is None or deadline < self._timer.when():
            self._watch_deadline(deadline)
        return await answer

    def _encode(self, request: Message, version: int) -> tuple[int, list[Bytes | FileSlice]]:
        correlation_id = self._next_correlation_id
        frame = encode_request(request.api_key, version, correlation_id, self._client_id, request)
        self._next_correlation_id = (correlation_id + 1) % (1 << 31)
        return correlation_id, frame

    def _transmit(self, frame: list[Bytes | FileSlice]) -> None:
        for part in frame:
            assert not isinstance(part, FileSlice), "clients send bytes, never files"
            self._outbox.append(part)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outbox:
                sent = self._stream.send(tuple(self._outbox))
                if not self._take_off(sent):
                    self._stream.watch_writes(self._on_writable)
                    return
        except OSError as error:
            self._on_broken(error)

    def _take_off(self, sent: int) -> bool:
        """Drops what was sent from the outbox; whether nothing is left in it."""
        while self._outbox and sent >= len(self._outbox[0]):
            sent -= len(self._outbox.popleft())
        if sent:
            self._outbox[0] = memoryview(self._outbox[0])[sent:]
        return not self._outbox

    def _on_writable(self) -> None:
        self._stream.watch_writes(None)
        if self.is_open:
            self._flush()

    # --- receiving

    def _on_readable(self) -> None:
        try:
            for _ in range(_RECEIVES_PER_TURN):
                room = self._frames.room()
                received = self._stream.recv_into(room)
                if not received:
                    self._fail(self._why_closed())
                    return
                for frame in self._frames.take(received):
                    self._on_frame(frame)
                if not self.is_open or received < len(room):
                    return  # What comes later is told of anew.
        except BlockingIOError:
            return
        except OSError as error:
            self._on_broken(error)
        except ProtocolError as error:
            self._fail(f"what came is not the Kafka protocol ({error}); is this the port of a broker?")

    def _on_frame(self, frame: memoryview) -> None:
        if not self._pending:
            raise ProtocolError("an answer that was not asked for")
        pending = self._pending.popleft()
        self._has_answered |= pending.api_key != ApiKey.API_VERSIONS
        if pending.answer.done():
            return  # Whoever asked was cancelled.
        try:
            answer = _decode_answer(pending, frame)
        except ProtocolError:
            self._pending.appendleft(pending)  # It fails with the connection.
            raise
        pending.answer.set_result(answer)

    # --- ending

    def _watch_deadline(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_deadline) if self.is_open else None

    def _on_deadline(self) -> None:
        """The request that had the earliest deadline when the timer was set may have been answered long ago. What has
        arrived is read first: after a process was held up its answers lie in the socket."""
        self._timer = None
        if self.is_open:
            self._on_readable()
        awaited = [each for each in self._pending if not each.answer.done()]
        if not awaited:
            return
        first = min(awaited, key=lambda each: each.deadline)
        if first.deadline <= self._loop.time():
            self._fail(f"no answer to {api_name(first.api_key)} within {first.timeout_ms} ms")
        else:
            self._watch_deadline(first.deadline)

    def _check_is_open(self) -> None:
        if self._failure is not None:
            raise KafkaError(self._failure.code, self._failure.message)

    def _on_broken(self, error: OSError) -> None:
        is_passing = not isinstance(error, UntrustedPeerError)
        self._fail(_cause(error), ErrorCode.NETWORK_EXCEPTION if is_passing else ErrorCode.INVALID_CONFIG)

    def _why_closed(self) -> str:
        """A broker whose listener is secured says nothing to a client that does not know it: it hangs up."""
        closed = "the broker closed the connection"
        if self._has_answered:
            return closed
        missing = "SASL" if self._served else "TLS, or a certificate of this client"
        return f"{closed} before it answered; if it always does, it may want {missing}: see security.protocol"

    def _fail(self, cause: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        if self._failure is not None:
            return
        self._failure = KafkaError(code, f"lost the connection to {self.address}: {cause}")
        self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
        self._outbox.clear()
        pending, self._pending = self._pending, deque()
        for open_request in pending:
            if not open_request.answer.done():
                open_request.answer.set_exception(KafkaError(self._failure.code, self._failure.message))


def _decode_answer(pending: _Pending, frame: memoryview) -> Message:
    if len(frame) < 4:
        raise ProtocolError(f"an answer of {len(frame)} bytes")
    correlation_id = int.from_bytes(frame[:4], "big")
    if correlation_id != pending.correlation_id:
        raise ProtocolError(f"the answer to request {correlation_id} where {pending.correlation_id} is due")
    if pending.api_key == ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        # Whatever version was asked for, this refusal has the form of version 0 (KIP-511). Its list is not needed.
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return decode_response(pending.api_key, pending.version, frame)[1]
