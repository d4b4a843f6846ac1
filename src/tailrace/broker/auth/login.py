"""The requests of a login, in the only order in which they are taken:

    ApiVersions        once, and not at all if the client likes; again only if its version was not known
    SaslHandshake      names the mechanism
    SaslAuthenticate   as often as the mechanism needs; after SaslHandshake version 0 its messages come bare

Pure: a generator that is sent a request and yields the answer, bytes with their size; first it yields nothing. A `Wait`
of the mechanism goes through. It ends with an `Admission`. Whatever else comes is a ProtocolError, and the connection
closes without an answer. A refusal is a `LoginRefusedError`, with the last answer. No other API is ever reached from
here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tailrace.broker.auth.conversations import Accepted, Conversation, RefusalError, Wait
from tailrace.broker.context import RequestContext
from tailrace.broker.handlers.api_versions import handle_api_versions, unsupported_version_response
from tailrace.model.errors import ErrorCode, ProtocolError
from tailrace.model.security import Principal
from tailrace.wire.apis.data import ApiVersionsRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.wire.compile import decode
from tailrace.wire.frame import RequestHeader, decode_request_header, encode_response
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener
    from tailrace.broker.services import Services

M = TypeVar("M", bound=Message)

_SIZE = Struct(">i")
_HEADER_MIN_BYTES = 8
_FIRST_VERSION_WITH_SESSIONS = 1


class Mechanism(NamedTuple):
    begin: Callable[[], Conversation]
    session_ms: int = 0  # How long a login is good for at most (KIP-368); 0 for ever.
    make_connection: Callable[..., Any] | None = None  # Where one may not be for ever: it knows how late it is.
    receive_max_bytes: int = 1 << 19  # sasl.server.max.receive.size, for whoever logs in again.


Mechanisms = Mapping[str, Mechanism]


class Admission(NamedTuple):
    principal: Principal
    last: bytes  # The answer to the last request.
    session_ms: int = 0  # How long it is good for; 0 for ever.
    name: str = ""
    mechanism: Mechanism | None = None
    mechanisms: Mechanisms = {}  # By which it may log in again.


class LoginRefusedError(Exception):
    """The connection closes after the `answer`, if there is one; both are held back for a while."""

    def __init__(self, answer: bytes, cause: str) -> None:
        super().__init__(cause)
        self.answer = answer


Login = Generator[bytes | Wait, Any, Admission]


def log_in(services: Services, listener: BoundListener, peer: str, mechanisms: Mechanisms) -> Login:
    header, body = _read((yield b""))
    while header.request_api_key == ApiKey.API_VERSIONS:
        is_known = header.request_api_version in ApiVersionsRequest.versions
        request = yield _tell_versions(services, listener, peer, header, body)
        header, body = _read(request)
        if is_known:
            break
    if header.request_api_key != ApiKey.SASL_HANDSHAKE:
        raise ProtocolError(f"API key {header.request_api_key} before a login, where SaslHandshake belongs")
    name = _decode(SaslHandshakeRequest, header, body).mechanism
    mechanism = mechanisms.get(name)
    answer = SaslHandshakeResponse(mechanisms=list(mechanisms))
    if mechanism is None:
        answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        raise LoginRefusedError(_encode(header, answer), "it wants a SASL mechanism that is not enabled")
    message = yield _encode(header, answer)
    converse = _converse_bare if header.request_api_version == 0 else _converse
    conversation = mechanism.begin()
    next(conversation)
    admission = yield from converse(conversation, message, mechanism.session_ms)
    return admission._replace(name=name, mechanism=mechanism, mechanisms=mechanisms)


def read_handshake(request: bytes) -> tuple[int, str]:
    """Its version, and the mechanism that it names. Raises ProtocolError."""
    header, body = _read(request)
    return header.request_api_version, _decode(SaslHandshakeRequest, header, body).mechanism


def _converse(conversation: Conversation, request: bytes, session_ms: int) -> Login:
    while True:
        header, body = _read(request)
        if header.request_api_key != ApiKey.SASL_AUTHENTICATE:
            raise ProtocolError(f"API key {header.request_api_key} within a login, where SaslAuthenticate belongs")
        message = _decode(SaslAuthenticateRequest, header, body).auth_bytes
        try:
            said = yield from _say(conversation, message)
        except RefusalError as error:
            refused = SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
            raise LoginRefusedError(_encode(header, refused), error.cause) from None
        if isinstance(said, Accepted):
            told = SaslAuthenticateResponse(auth_bytes=said.last)
            admission = _admission(said, session_ms)
            if header.request_api_version >= _FIRST_VERSION_WITH_SESSIONS:
                told.session_lifetime_ms = admission.session_ms
            return admission._replace(last=_encode(header, told))
        request = yield _encode(header, SaslAuthenticateResponse(auth_bytes=said))


def _converse_bare(conversation: Conversation, message: bytes, session_ms: int) -> Login:
    while True:
        try:
            said = yield from _say(conversation, message)
        except RefusalError as error:
            raise LoginRefusedError(b"", error.cause) from None
        if isinstance(said, Accepted):
            return _admission(said, session_ms)._replace(last=_SIZE.pack(len(said.last)) + said.last)
        message = yield _SIZE.pack(len(said)) + said


def _say(conversation: Conversation, message: bytes) -> Generator[Wait, Any, bytes | Accepted]:
    """What is said to that, or who it is."""
    said: Any = message
    while True:
        try:
            answer = conversation.send(said)
        except StopIteration as end:
            accepted: Accepted = end.value
            return accepted
        if isinstance(answer, bytes):
            return answer
        said = yield answer


def _admission(accepted: Accepted, session_ms: int) -> Admission:
    """A session is over when what was shown is no longer good, or before."""
    lives_ms = [each for each in (session_ms, accepted.life_ms) if each]
    principal = Principal("User", accepted.user, accepted.is_by_token)
    return Admission(principal, b"", min(lives_ms, default=0))


def _tell_versions(services: Services, listener: BoundListener, peer: str, header: RequestHeader, body: bytes) -> bytes:
    version = header.request_api_version
    if version not in ApiVersionsRequest.versions:
        # In version 0, which every client understands (KIP-511).
        return _encode(header, unsupported_version_response(), version=0)
    context = RequestContext(
        api_key=ApiKey.API_VERSIONS,
        api_version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        peer=peer,
        listener=listener,
    )
    return _encode(header, handle_api_versions(services, context, decode(ApiVersionsRequest, version, body)))


def _read(request: bytes) -> tuple[RequestHeader, bytes]:
    if len(request) < _HEADER_MIN_BYTES:
        raise ProtocolError(f"a request of {len(request)} bytes before a login")
    header, position = decode_request_header(request)
    return header, request[position:]


def _decode(request_type: type[M], header: RequestHeader, body: bytes) -> M:
    if header.request_api_version not in request_type.versions:
        raise ProtocolError(f"{request_type.__name__} in version {header.request_api_version}")
    return decode(request_type, header.request_api_version, body)


def _encode(header: RequestHeader, answer: Message, *, version: int | None = None) -> bytes:
    version = header.request_api_version if version is None else version
    parts = encode_response(header.request_api_key, version, header.correlation_id, answer)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type] # No answer of a login is a file.
