"""Keys and values that carry the id of a schema, opened as JSON with the schemas of a registry.

The registry is asked beside the loop, with the login of whoever reads, and each schema once. For a moment after it has
refused something, or while it is away, it is not asked again: what names such a schema is shown as it is, with the
reason.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.real.registry.client import RegistryClient, RegistryError
from tailrace.schemas.codecs import CodecError, Decode, decoder
from tailrace.schemas.framing import FramingError, read_frame
from tailrace.wire.payload import Record

# Of all topics together; a cluster has hundreds.
_SCHEMAS_MAX = 2000
# Refusals after which the rest is not asked for: ids at random must not become a flood of questions.
_REFUSED_MAX = 50
_REFUSAL_S = 10.0

Name = int | str


class Opened(NamedTuple):
    """`text` is JSON; None if it could not be opened, and why."""

    schema: Name
    text: bytes | None
    problem: str = ""


class RecordOpener:
    def __init__(self, client: RegistryClient, opened_bytes_max: int | None = None) -> None:
        """Opening takes the loop's time: what is larger than `opened_bytes_max` is not opened."""
        self.client = client
        self._opened_bytes_max = opened_bytes_max
        self._decoders: OrderedDict[Name, Decode] = OrderedDict()
        self._refusals: dict[Name, tuple[str, float]] = {}
        self._away: tuple[str, float] = ("", 0.0)

    async def prepare(self, records: Iterable[Record]) -> str:
        """Learns the schemas that these records name, as far as the registry tells them. Why it is away, if a schema is
        missing for that."""
        now = asyncio.get_running_loop().time()
        unknown = dict.fromkeys(
            name
            for record in records
            for part, content in (("key", record.key), ("value", record.value))
            if (name := _name(part, content, record)) is not None and name not in self._decoders
        )
        refused = 0
        for name in unknown:
            if self._away[1] > now:
                return self._away[0]
            if self._refusals.get(name, ("", 0.0))[1] > now:
                continue
            if refused == _REFUSED_MAX:
                break
            try:
                self._remember(name, await asyncio.to_thread(self._learn, name))
            except RegistryError as error:
                refused += 1
                if error.is_away:
                    self._away = (str(error), now + _REFUSAL_S)
                    return self._away[0]
                self._refuse(name, str(error), now)
            except ImportError as error:
                refused += 1
                self._refuse(name, f"{error.name} is not installed: pip install 'tailrace[schemas]'", now)
        return ""

    def open(self, part: str, record: Record) -> Opened | None:
        """None if it names no schema."""
        content = record.value if part == "value" else record.key
        name = _name(part, content, record)
        if name is None or content is None:
            return None
        decode = self._decoders.get(name)
        if decode is None:
            return Opened(name, None, self._refusals.get(name, (self._away[0] or "it was not asked for", 0.0))[0])
        if self._opened_bytes_max is not None and len(content) > self._opened_bytes_max:
            return Opened(name, None, f"it has more than {self._opened_bytes_max:,} bytes")
        try:
            start = read_frame(content, part, record.headers).start
            return Opened(name, decode(content[start:]).encode("utf-8", "replace"))
        except (CodecError, FramingError, UnicodeDecodeError, RecursionError) as error:
            return Opened(name, None, str(error))

    def _learn(self, name: Name) -> Decode:
        return decoder(self.client.schema(name))

    def _remember(self, name: Name, decode: Decode) -> None:
        self._decoders[name] = decode
        while len(self._decoders) > _SCHEMAS_MAX:
            self._decoders.popitem(last=False)

    def _refuse(self, name: Name, reason: str, now: float) -> None:
        if len(self._refusals) >= _SCHEMAS_MAX:
            self._refusals.clear()
        self._refusals[name] = (reason, now + _REFUSAL_S)


def _name(part: str, content: bytes | None, record: Record) -> Name | None:
    if not content:
        return None
    try:
        return read_frame(content, part, record.headers).schema
    except FramingError:
        return None
