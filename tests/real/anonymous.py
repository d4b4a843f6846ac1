"""Somebody without a credential at every open port of some processes, whatever these ports are for: found in /proc, and
not by a list, so that a port that is new is tried too."""

import os
import re
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .raw import METADATA, TIMEOUT_S, request

_LISTENS = "0A"
_TABLES = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}
_TLS_ALERT = b"\x15\x03"
# What says nothing but that nothing is said; and the way to a login.
_HTTP_REFUSALS = (400, 401, 403, 404, 405, 421, 431)
_HTTP_REDIRECTS = (302, 303, 307, 308)
# What a console, a registry, a gateway and a node have to show. /health of nodes is open to everyone by design.
_PATHS = (
    *("/", "/subjects", "/config", "/schemas/ids/1", "/topics", "/groups", "/brokers", "/consumers", "/v3/clusters"),
    *("/metrics", "/status"),
)
# A protocol that answers none of these may be there one day: then it is for who adds it to add a question.
QUESTIONS = {
    "Kafka": request(METADATA, 1, b"\xff\xff\xff\xff", 7),
    **{f"HTTP {path}": f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for path in _PATHS},
    "a line": b"help\r\n\r\n",
    "a large size": b"\x7f\xff\xff\xff" + b"x" * 1000,
}


def processes_of(folder: str) -> list[int]:
    """Those that were started with this folder in their command line, and what they have forked."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"tailrace" in words and folder.encode() in b" ".join(words):
                    found.append(int(entry.name))
    return found


def open_ports(process_ids: Iterable[int]) -> set[tuple[str, int]]:
    """(address, port) of every TCP socket that listens."""
    inodes = {inode for each in process_ids for inode in _socket_inodes(each)}
    return {place for table in _TABLES for inode, place in _listening(table) if inode in inodes}


def has_datagram_sockets(process_ids: Iterable[int]) -> bool:
    inodes = {inode for each in process_ids for inode in _socket_inodes(each)}
    lines = [line.split() for table in ("udp", "udp6") for line in _lines(table)]
    return any(int(words[9]) in inodes for words in lines)


def answers_to_anonymous(place: tuple[str, int], authority: str, stranger: str) -> list[str]:
    """What it says to somebody who is nobody: to plain bytes, over TLS, and over TLS with a certificate that another
    authority has signed. A closed connection, a TLS alert and a refusal by HTTP are no answers."""
    answers = []
    for name, question in QUESTIONS.items():
        for way in ("plain", "TLS", "a stranger's certificate"):
            told = _ask(place, question, None if way == "plain" else _context(authority, way != "TLS" and stranger))
            if told and not told.startswith(_TLS_ALERT) and not _is_http_refusal(told):
                answers.append(f"{place} to {name} by {way}: {told[:40]!r}")
    return answers


def _ask(place: tuple[str, int], question: bytes, context: ssl.SSLContext | None) -> bytes:
    with socket.create_connection(place, TIMEOUT_S) as plain:
        try:
            connected = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
            with connected:
                connected.sendall(question)
                return connected.recv(4096)
        except TimeoutError:
            raise AssertionError(f"{place} neither answers nor refuses within {TIMEOUT_S} s") from None
        except OSError:
            return b""


def _is_http_refusal(told: bytes) -> bool:
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", told)
    if found is None:
        return False
    status = int(found[1])
    leads_to = re.search(rb"(?im)^location: *(\S+)", told)
    is_to_login = leads_to is not None and b"login" in leads_to[1]
    return status in _HTTP_REFUSALS or (status in _HTTP_REDIRECTS and is_to_login)


def _context(authority: str, certificate: str | bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if certificate:
        context.load_cert_chain(str(certificate))
    return context


def _socket_inodes(process_id: int) -> Iterator[int]:
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
                yield int(found[1])


def _listening(table: str) -> Iterator[tuple[int, tuple[str, int]]]:
    for words in map(str.split, _lines(table)):
        if words[3] == _LISTENS:
            address, _, port = words[1].partition(":")
            # In words of 32 bits, each in the order of this machine.
            packed = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
            host = socket.inet_ntop(_TABLES[table], packed)
            yield int(words[9]), ("127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host, int(port, 16))


def _lines(table: str) -> list[str]:
    return Path(f"/proc/net/{table}").read_text().splitlines()[1:]
