"""Reads the /metrics of nodes, as Prometheus does: text over HTTP, from all nodes at once.

A node that cannot be read is a reading without samples, never an error: that it is missing is what matters.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
# A scrape of 10,000 partitions has 20 MB.
_TEXT_MAX_BYTES = 100 << 20

Labels = frozenset[tuple[str, str]]


class Sample(NamedTuple):
    name: str
    labels: Labels
    value: float


class Reading(NamedTuple):
    """One node at one moment; without samples if it could not be read, and why."""

    instance: str
    at: float  # Seconds since 1970, in the middle of the exchange.
    samples: tuple[Sample, ...] | None
    problem: str = ""


class TargetsError(Exception):
    """It is not known which nodes there are. The message says what to do."""


def parse_text(text: str) -> tuple[Sample, ...]:
    """Lines that are no samples are left out."""
    found = []
    for line in text.splitlines():
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
    """`user` is NAME:PASSWORD where nodes ask for one; `authorities` a PEM file, where the machine trusts others."""

    def __init__(self, *, timeout_seconds: float = 10.0, user: str = "", authorities: str = "") -> None:
        self._timeout_seconds = timeout_seconds
        self._headers = {"Connection": "close"}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._authorities = authorities

    async def read(self, targets: Sequence[str]) -> list[Reading]:
        return list(await asyncio.gather(*(asyncio.to_thread(self.read_one, each) for each in targets)))

    def read_one(self, target: str) -> Reading:
        url, began = urlsplit(target), time.time()
        instance = url.netloc
        try:
            connection = self._connect(url.scheme, url.hostname or "", url.port)
            try:
                connection.request("GET", (url.path.rstrip("/") or "/metrics"), headers=self._headers)
                answer = connection.getresponse()
                body = answer.read(_TEXT_MAX_BYTES)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            return Reading(instance, began, None, str(error) or type(error).__name__)
        at = (began + time.time()) / 2
        if answer.status != 200:
            return Reading(instance, at, None, f"it answers {answer.status}")
        return Reading(instance, at, parse_text(body.decode("utf-8", "replace")))

    def _connect(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        if scheme != "https":
            return HTTPConnection(host, port, timeout=self._timeout_seconds)
        context = ssl.create_default_context(cafile=self._authorities or None)
        return HTTPSConnection(host, port, timeout=self._timeout_seconds, context=context)
