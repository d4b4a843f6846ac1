"""What a broker under test counts, for assertions: `broker.metrics()["kafka_server_..._total"]`."""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.testing.users import ClientSettings

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_TIMEOUT_S = 10.0


class Metrics:
    """One reading. Samples are found by name and labels: `value("...", topic="orders")`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if not line.startswith("#") and (match := _SAMPLE.fullmatch(line)) is not None:
                self._samples[match[1], frozenset(_LABEL.findall(match[2] or ""))] = float(match[3])

    def value(self, name: str, **labels: str | int) -> float:
        """Of the sample with just these labels; 0 where there is none: a counter begins there."""
        return self._samples.get((name, frozenset((key, str(text)) for key, text in labels.items())), 0.0)

    def sum(self, name: str, **labels: str | int) -> float:
        """Of all samples with at least these labels."""
        wanted = {(key, str(text)) for key, text in labels.items()}
        return sum(value for (each, has), value in self._samples.items() if each == name and wanted <= has)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._samples}


def scrape(url: str, settings: ClientSettings | None = None) -> Metrics:
    """`settings` of a user, where metrics are told by HTTPS."""
    scheme, _, address = url.partition("://")
    headers = {}
    if scheme == "https":
        assert settings is not None, "by HTTPS metrics are for users"
        login = settings.login
        context = ssl.create_default_context(cafile=login.authority)
        connection: HTTPConnection = HTTPSConnection(address, timeout=_TIMEOUT_S, context=context)
        headers["Authorization"] = "Basic " + b64encode(f"{login.username}:{login.password}".encode()).decode()
    else:
        connection = HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{url}/metrics answered {answer.status}: {text.strip()}")
    return Metrics(text)
