"""What the schema registry says of an id: under which subjects it stands, and what it is called.

Rules
- Asked in helper threads, through the Web port: at most so many questions a second and a few at once. A question that
  somebody else has asked already is not asked again, and an answer is remembered.
- What is known stays known. What is not (an id that is unknown, or not under the subject that a topic needs) is asked
  again after a while, because it may be registered meanwhile.
- Of several registries the one that has answered last is asked first, and the others while it is away.
- Everybody who waits has a deadline. Nobody is told anything that the registry did not say.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.model.ports import WebQuestion, WebRefusalError

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports

_ANSWER_MAX_BYTES = 4 * 1024 * 1024
_AT_ONCE = 4
_NOT_FOUND = 404
_SECOND_MS = 1000


class RegistryAwayError(Exception):
    """The registry has not answered; the text says why."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Of an id or a guid; without subjects it is not registered at all."""

    subjects: frozenset[str]
    # Full names of the types that it defines: what a record-name strategy makes subjects of.
    names: frozenset[str]
    asked_ms: float


class Registry:
    def __init__(self, url: str, config: BrokerConfig, ports: Ports) -> None:
        # The one that has answered last is the first.
        self._urls = [each.strip().rstrip("/") for each in url.split(",") if each.strip()]
        self._ports = ports
        self._timeout_ms = config.schema_validation_timeout_ms
        self._unknown_ms = config.schema_validation_unknown_ms
        self._known_max = config.schema_validation_cache_max_ids
        self._rate = config.schema_validation_lookups_per_second
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if config.confluent_basic_auth_user_info:
            self._headers["Authorization"] = _basic(config.confluent_basic_auth_user_info)
        self._known: OrderedDict[int | str, Registered] = OrderedDict()
        self._under_way: dict[int | str, asyncio.Future[Registered]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        # Questions that may still be asked in this second, and when it began.
        self._left, self._second_ms = self._rate, ports.clock.monotonic_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked = 0

    async def find(self, schema: int | str, *, fits: frozenset[str] | None) -> Registered:
        """What is registered. `fits`: if none of these subjects is known of it, an old answer is not good enough.
        Raises RegistryAwayError."""
        known = self._known.get(schema)
        if known is not None and (_is_good(known, fits) or not self._is_old(known)):
            self._known.move_to_end(schema)
            return known
        answer = self._under_way.get(schema)
        if answer is None:
            answer = self._under_way[schema] = asyncio.get_running_loop().create_future()
            task = asyncio.ensure_future(self._ask(schema, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise RegistryAwayError(f"it did not answer within {self._timeout_ms} ms") from None

    def _is_old(self, known: Registered) -> bool:
        return self._ports.clock.monotonic_ms() - known.asked_ms >= self._unknown_ms

    async def _ask(self, schema: int | str, answer: asyncio.Future[Registered]) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000), self._places:
                found = await self._look_up(schema)
        except TimeoutError:
            self._settle(schema, answer, RegistryAwayError("there are too many questions before this one"))
        except (OSError, ValueError) as error:
            self._settle(schema, answer, RegistryAwayError(str(error)))
        else:
            self._known[schema] = found
            if len(self._known) > self._known_max:
                self._known.popitem(last=False)
            self._settle(schema, answer, found)

    def _settle(
        self, schema: int | str, answer: asyncio.Future[Registered], outcome: Registered | RegistryAwayError
    ) -> None:
        del self._under_way[schema]
        if isinstance(outcome, Registered):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)
            answer.exception()  # Whoever waited may be gone.

    async def _look_up(self, schema: int | str) -> Registered:
        now_ms = self._ports.clock.monotonic_ms()
        if isinstance(schema, str):
            ids = await self._get(f"/schemas/guids/{schema}/ids")
            schema = next((each["id"] for each in ids or [] if each.get("context") in (".", "")), -1)
        nothing = Registered(frozenset(), frozenset(), now_ms)
        versions = await self._get(f"/schemas/ids/{schema}/versions")
        if not versions:
            return nothing
        text = await self._get(f"/schemas/ids/{schema}")
        if not text:
            return nothing
        names = await self._ports.background.run(lambda: names_of(text.get("schemaType", "AVRO"), text["schema"]))
        return Registered(frozenset(str(each["subject"]) for each in versions), names, now_ms)

    async def _get(self, path: str) -> Any:
        """What is there, or None. Raises OSError or ValueError."""
        for url in self._urls[:-1]:
            try:
                return await self._get_from(url, path)
            except (OSError, ValueError):
                continue
        return await self._get_from(self._urls[-1], path)

    async def _get_from(self, url: str, path: str) -> Any:
        await self._take_turn()
        web = self._ports.web
        assert web is not None, "these ports have no web"
        # Each has its share of the time: one that is silent must not use up that of the others.
        question = WebQuestion(url + path, self._timeout_ms // len(self._urls), _ANSWER_MAX_BYTES, self._headers)
        self.asked += 1
        try:
            answer = json.loads(await self._ports.background.run(lambda: web.ask(question)))
        except WebRefusalError as error:
            if error.status != _NOT_FOUND:
                raise
            answer = None
        if url != self._urls[0]:
            self._urls = [url, *(each for each in self._urls if each != url)]
        return answer

    async def _take_turn(self) -> None:
        while True:
            now_ms = self._ports.clock.monotonic_ms()
            if now_ms - self._second_ms >= _SECOND_MS:
                self._second_ms, self._left = now_ms, self._rate
            if self._left > 0:
                self._left -= 1
                return
            await asyncio.sleep((self._second_ms + _SECOND_MS - now_ms) / 1000)


def names_of(schema_type: str, text: str) -> frozenset[str]:
    """The full names of the types that a schema defines; without its references, of which a name does not depend."""
    if schema_type == "PROTOBUF":
        from tailrace.schemas.parsed import InvalidSchema
        from tailrace.schemas.protobuf.linker import symbols_of
        from tailrace.schemas.protobuf.parser import parse_file

        try:
            return frozenset(symbols_of(parse_file(text)))
        except InvalidSchema:
            return frozenset()
    found = json.loads(text)
    if not isinstance(found, dict):
        return frozenset()
    name = found.get("title" if schema_type == "JSON" else "name")
    if not isinstance(name, str):
        return frozenset()
    space = found.get("namespace")
    qualified = schema_type == "AVRO" and isinstance(space, str) and space and "." not in name
    return frozenset({f"{space}.{name}" if qualified else name})


def _is_good(known: Registered, fits: frozenset[str] | None) -> bool:
    return bool(known.subjects) if fits is None else bool(known.subjects & fits)


def _basic(user_info: str) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(user_info.encode()).decode()
