"""Reads the /metrics of nodes, as Prometheus does: text over HTTP, from all nodes at once.

A node that cannot be read as a whole is a reading without samples, never an error: that it is missing is what matters.
It has a time in which to say something, and one in which to say all: one that trickles keeps nobody waiting either.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.apps.threads import in_thread

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
# A scrape of 10,000 partitions has 20 MB, or 60 with the longest names.
_TEXT_MAX_BYTES = 100 << 20
# Prometheus' default.
_WHOLE_SECONDS = 10.0

Labels = frozenset[tuple[str, str]]


class Moment(NamedTuple):
    """One moment on two clocks. The wall clock may be set while one watches."""

    steady: float  # Seconds: how long something lasts is told by these alone.
    wall: float  # Seconds since 1970: for people, and to compare clocks.


def now() -> Moment:
    return Moment(time.monotonic(), time.time())


class Sample(NamedTuple):
    name: str
    labels: Labels
    value: float


class Reading(NamedTuple):
    """One node at one moment; without samples if it could not be read, and why."""

    instance: str
    at: Moment  # Between the question and the first of the answer.
    samples: tuple[Sample, ...] | None
    problem: str = ""


class TargetsError(Exception):
    """It is not known which nodes there are. The message says what to do."""


def parse_text(text: str, names: frozenset[str] | None = None) -> tuple[Sample, ...]:
    """Lines that are no samples are left out; with `names` all but theirs, and far sooner where there are many."""
    found = []
    for line in text.splitlines() if names is None else _lines_of(names).findall(text):
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = frozenset((key, _plain(text)) for key, text in _LABEL.findall(match[2])) if match[2] else frozenset()
        found.append(Sample(match[1], labels, value))
    return tuple(found)


@lru_cache(4)  # Of a process that watches: always the same.
def _lines_of(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(names)))})[{{ ].*", re.MULTILINE)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def read_targets(words: Sequence[str]) -> list[str]:
    """Addresses of nodes, from addresses and from Prometheus' lists of them (file_sd), as they are now."""
    targets: list[str] = []
    for word in words:
        if not word.endswith(".json"):
            targets.append(word)
            continue
        try:
            with open(word, encoding="utf-8") as file:
                for group in json.load(file):
                    scheme = group.get("labels", {}).get("__scheme__", "http")
                    targets += [f"{scheme}://{target}" for target in group["targets"]]
        except OSError as error:
            raise TargetsError(f"cannot read {word}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TargetsError(f"{word} is no list of targets as Prometheus has them (file_sd)") from None
    if not targets:
        raise TargetsError("no node is named: give addresses such as 127.0.0.1:9404, or a list of targets (.json)")
    return list(dict.fromkeys(each if "://" in each else f"http://{each}" for each in targets))


class Scraper:
    """`timeout_seconds` is for how long a node may say nothing. `user` is NAME:PASSWORD where nodes ask for one;
    `authorities` a PEM file, where the machine trusts others."""

    def __init__(
        self,
        *,
        timeout_seconds: float = 10.0,
        whole_seconds: float = _WHOLE_SECONDS,
        user: str = "",
        authorities: str = "",
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._whole_seconds = whole_seconds
        self._headers = {"Connection": "close"}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._authorities = authorities

    async def read(self, targets: Sequence[str], names: frozenset[str] | None = None) -> list[Reading]:
        """All samples, or those of these names."""
        return list(await asyncio.gather(*(self._read(each, names) for each in targets)))

    async def _read(self, target: str, names: frozenset[str] | None) -> Reading:
        url, began = urlsplit(target), time.monotonic()
        try:
            connection = self._connection(url.scheme, url.hostname or "", url.port)
        except (OSError, ValueError) as error:
            return Reading(url.netloc, now(), None, str(error))
        alarm = asyncio.get_running_loop().call_later(self._whole_seconds, _cut, connection)
        try:
            return await in_thread(self._ask, connection, url.netloc, url.path.rstrip("/") or "/metrics", names)
        except (OSError, HTTPException, ValueError) as error:
            is_late = time.monotonic() - began >= self._whole_seconds
            problem = f"no whole answer in {self._whole_seconds:g} s" if is_late else str(error) or type(error).__name__
            return Reading(url.netloc, now(), None, problem)
        finally:
            alarm.cancel()
            connection.close()

    def _ask(self, connection: HTTPConnection, instance: str, path: str, names: frozenset[str] | None) -> Reading:
        connection.connect()
        began = now()
        connection.request("GET", path, headers=self._headers)
        with connection.getresponse() as answer:
            ended = now()
            at = Moment((began.steady + ended.steady) / 2, (began.wall + ended.wall) / 2)
            if answer.status != 200:
                return Reading(instance, at, None, f"it answers {answer.status}")
            return Reading(instance, at, parse_text(_text_of(answer), names))

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        if scheme != "https":
            return HTTPConnection(host, port, timeout=self._timeout_seconds)
        context = ssl.create_default_context(cafile=self._authorities or None)
        return HTTPSConnection(host, port, timeout=self._timeout_seconds, context=context)


def _text_of(answer: HTTPResponse) -> str:
    if answer.length is None and not answer.chunked:
        raise ValueError("it broke off, or does not say where its answer ends")
    body = answer.read(_TEXT_MAX_BYTES + 1)
    if len(body) > _TEXT_MAX_BYTES:
        raise ValueError(f"it has more than {_TEXT_MAX_BYTES >> 20} MB to tell: see metrics.partitions.max")
    return body.decode("utf-8", "replace")


def _cut(connection: HTTPConnection) -> None:
    """Whoever reads from it finds its end."""
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
