"""A client of a schema registry, by Confluent's API: schemas by id or subject, with what they refer to. Blocks.

Answers about ids and versions never change, and are remembered, so no connection is kept. `latest` is asked each time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.schemas import AVRO, InvalidSchema, ParsedSchema, parse

if TYPE_CHECKING:
    from http.client import HTTPConnection

_ANSWER_MAX_BYTES = 16 * 1024 * 1024
_REFERENCES_DEPTH_MAX = 32
_TIMEOUT_S = 10.0
PATIENCE_S = 30.0
_OK, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 429, 500
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """The registry does not answer, or says no; the text says which. `status` is its answer's, if there was one."""

    def __init__(self, message: str, *, status: int | None = None, is_away: bool = False) -> None:
        """`is_away`: it cannot answer now, neither this question nor the next."""
        super().__init__(message)
        self.status = status
        self.is_away = is_away


@dataclass(frozen=True)
class RegistryAddress:
    """Where a registry is, and who asks. Crosses to other processes by pickle."""

    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = _TIMEOUT_S
    # How long those who can wait ask again while it is away.
    patience_s: float = PATIENCE_S

    def check(self) -> None:
        """Raises ValueError if it is no address."""
        from urllib.parse import urlsplit

        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is not the address of a registry, such as http://127.0.0.1:8081")


class Version(NamedTuple):
    schema_id: int
    version: int
    schema: ParsedSchema


class RegistryClient:
    def __init__(self, address: RegistryAddress) -> None:
        from urllib.parse import unquote, urlsplit

        address.check()
        self._parts = urlsplit(address.url)
        self._address = address
        user_info = address.user_info
        if user_info is None and self._parts.username is not None:
            user_info = f"{unquote(self._parts.username)}:{unquote(self._parts.password or '')}"
        self._headers = {
            "Accept": f"{_CONTENT_TYPE}, application/json",
            "Content-Type": _CONTENT_TYPE,
            "Connection": "close",
        }
        if address.token is not None:
            self._headers["Authorization"] = f"Bearer {address.token}"
        elif user_info is not None:
            from base64 import b64encode

            self._headers["Authorization"] = "Basic " + b64encode(user_info.encode()).decode()
        self._by_id: dict[int | str, ParsedSchema] = {}
        self._by_version: dict[tuple[str, int], Version] = {}

    def schema(self, named: int | str) -> ParsedSchema:
        """The schema of an id or a guid. Raises RegistryError."""
        if named not in self._by_id:
            path = f"/schemas/ids/{named}" if isinstance(named, int) else f"/schemas/guids/{named}"
            self._by_id[named] = self._parsed(self._ask("GET", path), 0)
        return self._by_id[named]

    def version(self, subject: str, version: int | str = "latest") -> Version:
        """A version of a subject. Raises RegistryError."""
        return self._version(subject, version, 0)

    def subjects(self) -> list[str]:
        return sorted(str(each) for each in self._ask("GET", "/subjects"))

    def versions(self, subject: str) -> list[int]:
        """Those that are not deleted."""
        return [int(each) for each in self._ask("GET", f"/subjects/{_quoted(subject)}/versions")]

    def level(self, subject: str) -> str:
        """How new versions have to fit earlier ones."""
        return str(self._ask("GET", f"/config/{_quoted(subject)}?defaultToGlobal=true")["compatibilityLevel"])

    def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """Subjects that have the schema, with their versions of it."""
        found = self._ask("GET", f"/schemas/ids/{schema_id}/versions")
        return sorted((str(each["subject"]), int(each["version"])) for each in found)

    def register(self, subject: str, schema_type: str, text: str) -> int:
        """The id of the schema under this subject, which has it from now on. Raises RegistryError."""
        body: dict[str, Any] = {"schema": text}
        if schema_type != AVRO:
            body["schemaType"] = schema_type
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}/versions", body)["id"])

    def lookup(self, subject: str, schema_type: str, text: str) -> int:
        """The id of the schema, which the subject must have already. Raises RegistryError."""
        body: dict[str, Any] = {"schema": text}
        if schema_type != AVRO:
            body["schemaType"] = schema_type
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}", body)["id"])

    def _version(self, subject: str, version: int | str, depth: int) -> Version:
        if isinstance(version, int) and (subject, version) in self._by_version:
            return self._by_version[subject, version]
        answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}?deleted=true")
        found = Version(int(answer["id"]), int(answer["version"]), self._parsed(answer, depth))
        self._by_version[subject, found.version] = found
        return found

    def _parsed(self, answer: Any, depth: int) -> ParsedSchema:
        if depth > _REFERENCES_DEPTH_MAX:
            raise RegistryError(f"references lead more than {_REFERENCES_DEPTH_MAX} levels deep")
        references = {
            each["name"]: self._version(each["subject"], int(each["version"]), depth + 1).schema
            for each in answer.get("references") or ()
        }
        try:
            return parse(answer.get("schemaType") or AVRO, answer["schema"], references)
        except InvalidSchema as error:
            raise RegistryError(f"the registry has a schema that cannot be read: {error}") from None

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        from http.client import HTTPException

        payload = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body=payload, headers=self._headers)
            answer = connection.getresponse()
            return self._judged(answer.status, answer.read(_ANSWER_MAX_BYTES + 1))
        except (OSError, HTTPException) as error:
            message = f"the schema registry at {self._place()} does not answer: {error}"
            raise RegistryError(message, is_away=True) from None
        finally:
            connection.close()

    def _judged(self, status: int, content: bytes) -> Any:
        if len(content) > _ANSWER_MAX_BYTES:
            raise RegistryError(f"the answer of {self._place()} has more than {_ANSWER_MAX_BYTES} bytes")
        try:
            found = json.loads(content)
        except ValueError:
            message = f"{self._place()} answers {status} and no JSON: is it a schema registry?"
            raise RegistryError(message, status=status, is_away=_is_away(status)) from None
        if status != _OK:
            told = found.get("message") if isinstance(found, dict) else None
            message = f"{self._place()} answers {status}: {told or 'and does not say why'}"
            raise RegistryError(message, status=status, is_away=_is_away(status))
        return found

    def _connection(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        host, timeout_s = self._parts.hostname, self._address.timeout_s
        assert host is not None
        if self._parts.scheme == "http":
            return HTTPConnection(host, self._parts.port, timeout=timeout_s)
        from ssl import create_default_context

        context = create_default_context(cafile=self._address.ca_file)
        return HTTPSConnection(host, self._parts.port, timeout=timeout_s, context=context)

    def _place(self) -> str:
        port = f":{self._parts.port}" if self._parts.port else ""
        return f"{self._parts.scheme}://{self._parts.hostname}{port}"


def _is_away(status: int) -> bool:
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def _quoted(subject: str) -> str:
    from urllib.parse import quote

    return quote(subject, safe="")
