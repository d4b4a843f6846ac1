"""A registry as the commands ask it: over HTTP, with the login of `--command-config`, and errors in its own words."""

from __future__ import annotations

import argparse
import json
import ssl
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from tailrace.cli import CommandError
from tailrace.schemas import InvalidSchema, ParsedSchema, parse

DEFAULT_URL = "http://127.0.0.1:8081"
_JSON = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404


def add_registry_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--registry", default=DEFAULT_URL, metavar="URL", help=f"the schema registry (default: {DEFAULT_URL})"
    )


class RegistryClient:
    def __init__(self, options: argparse.Namespace) -> None:
        self._url = urlsplit(options.registry)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise CommandError(f"--registry {options.registry}: expected http://host:port or https://host:port")
        self._timeout_s: float = options.timeout
        self._headers = {"Accept": _JSON, "Content-Type": _JSON}
        security = options.command_config
        if security.sasl is not None and security.sasl.username:
            login = f"{security.sasl.username}:{security.sasl.password}".encode()
            self._headers["Authorization"] = "Basic " + b64encode(login).decode()
        self._tls: ssl.SSLContext | None = None
        if security.tls is not None and self._url.scheme == "https":
            from tailrace.real.tls.certificates import make_tls_context

            self._tls = make_tls_context(security.tls)

    def version(self, subject: str, version: str) -> dict[str, Any] | None:
        """None if there is none; `latest` is a version, too."""
        status, answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return None if status == _NOT_FOUND else self._good(status, answer)

    def versions(self, subject: str) -> list[int]:
        status, answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions")
        found: list[int] = self._good(status, answer)
        return found

    def compare(self, subject: str, schema: dict[str, Any]) -> list[str]:
        """Why a schema may not be the next version; nothing if it may."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        status, answer = self._ask("POST", path, schema)
        found = self._good(status, answer)
        return [] if found["is_compatible"] else list(found.get("messages") or ["it does not say why"])

    def level(self, subject: str) -> str:
        status, answer = self._ask("GET", f"/config/{quote(subject, safe='')}?defaultToGlobal=true")
        level: str = self._good(status, answer)["compatibilityLevel"]
        return level

    def parsed(self, document: dict[str, Any]) -> ParsedSchema:
        """With what it refers to."""
        references = {}
        for reference in document.get("references", ()):
            found = self.version(reference["subject"], str(reference["version"]))
            if found is None:
                raise CommandError(f"it refers to {reference['subject']} {reference['version']}, which is not there")
            references[reference["name"]] = self.parsed(found)
        try:
            return parse(document.get("schemaType") or "AVRO", document["schema"], references)
        except InvalidSchema as error:
            raise CommandError(f"not a schema: {error}") from None

    def _good(self, status: int, answer: Any) -> Any:
        if status >= 400:
            message = answer.get("message") if isinstance(answer, dict) else answer
            raise CommandError(f"the registry says: {message} ({status})")
        return answer

    def _ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        host = self._url.hostname or ""
        connection: HTTPConnection
        if self._url.scheme == "https":
            connection = HTTPSConnection(host, self._url.port, timeout=self._timeout_s, context=self._tls)
        else:
            connection = HTTPConnection(host, self._url.port, timeout=self._timeout_s)
        body = None if content is None else json.dumps(content)
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, self._headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            where = self._url.geturl()
            raise CommandError(
                f"no answer from the registry at {where}: {error}; is it running? start one with: tailrace registry"
            ) from None
        finally:
            connection.close()
