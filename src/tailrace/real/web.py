"""The real Web: one HTTP request, bounded in time and in the size of the answer. Blocks.

Rules
- A redirect is followed within the same scheme, host and port only, a few times, and never for a form.
- The time is that of the whole exchange: a server that sends a byte now and then is hung up on.
- Nothing that a server sends becomes part of an error's text. Proxies of the environment are not used, as in Java.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tailrace.model.ports import WebQuestion, WebRefusalError
from tailrace.model.security import TlsSettings

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from urllib.parse import SplitResult

_OK = 200
_REDIRECTS_MAX = 3
_REDIRECTS = (301, 302, 303, 307, 308)


class RealWeb:
    def ask(self, question: WebQuestion) -> bytes:
        from http.client import HTTPException

        ends = time.monotonic() + question.timeout_ms / 1000
        late = TimeoutError(f"no whole answer within {question.timeout_ms} ms")
        try:
            answer = _follow(question, ends)
        except (OSError, HTTPException) as error:
            if time.monotonic() >= ends or isinstance(error, TimeoutError):
                raise late from None
            if isinstance(error, HTTPException):
                raise WebRefusalError("it does not answer in HTTP") from None
            raise
        if time.monotonic() >= ends:
            raise late  # Hung up on, it looks as if its answer had ended.
        return answer


def _follow(question: WebQuestion, ends: float) -> bytes:
    from urllib.parse import urlsplit

    url = question.url
    for _ in range(1 + _REDIRECTS_MAX):
        connection = _connect(urlsplit(url), question, ends)
        # The timeout of a socket is that of a single receive.
        watchdog = threading.Timer(max(0.0, ends - time.monotonic()), _hang_up, (connection,))
        watchdog.daemon = True
        watchdog.start()
        try:
            with _exchange(connection, urlsplit(url), question) as answer:
                if answer.status == _OK:
                    return _read(answer, question.answer_max_bytes)
                if answer.status not in _REDIRECTS or question.form is not None:
                    refusal = WebRefusalError(f"it answers {answer.status} {_phrase(answer.status)}".rstrip())
                    refusal.status = answer.status
                    raise refusal
                url = _next_url(url, answer.getheader("Location", ""))
        finally:
            watchdog.cancel()
            connection.close()
    raise WebRefusalError(f"it sends whoever asks elsewhere, more than {_REDIRECTS_MAX} times")


def _connect(url: SplitResult, question: WebQuestion, ends: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    left_s = ends - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    assert url.hostname is not None, "the settings have checked it"
    if url.scheme == "https":
        from tailrace.real.tls.certificates import make_tls_context

        context = make_tls_context(question.tls or TlsSettings())
        connection: HTTPConnection = HTTPSConnection(url.hostname, url.port, timeout=left_s, context=context)
    else:
        connection = HTTPConnection(url.hostname, url.port, timeout=left_s)
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def _exchange(connection: HTTPConnection, url: SplitResult, question: WebQuestion) -> HTTPResponse:
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = dict(question.headers) | {"Connection": "close"}
    if question.form is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["Content-Type"] = question.content_type
        connection.request("POST", path, body=question.form, headers=headers)
    return connection.getresponse()


def _read(answer: HTTPResponse, max_bytes: int) -> bytes:
    body = answer.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise WebRefusalError(f"its answer has more than {max_bytes} bytes")
    return body


def _next_url(url: str, location: str) -> str:
    from urllib.parse import urljoin, urlsplit

    here = urlsplit(url)
    try:
        there = urlsplit(urljoin(url, location))
        if (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port):
            return there._replace(netloc=here.netloc).geturl()
    except ValueError:
        pass  # It is no address at all.
    raise WebRefusalError("it sends whoever asks to another host, where nobody is asked")


def _phrase(status: int) -> str:
    from http.client import responses

    return responses.get(status, "")


def _hang_up(connection: HTTPConnection) -> None:
    import socket

    try:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It is closed already.
