"""What the handler of `process` returns, as records for the topic that it writes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.kit.app.work import Outgoing
from tailrace.kit.messages import Message, headers_of
from tailrace.kit.messages import Outgoing as Output
from tailrace.kit.serdes import AskingSerde, Serde
from tailrace.kit.serdes.port import Part


class Outputs:
    """None is no record, a list is several; each is a value, which goes on under the key it came with, or an `Output`
    with a key and headers of its own."""

    def __init__(self, topic: str, *, keys: Serde, values: Serde) -> None:
        self._topic = topic
        self._keys = keys
        self._values = values
        parts: list[tuple[Serde, Part]] = [(keys, "key"), (values, "value")]
        self._unprepared = [(serde, part) for serde, part in parts if isinstance(serde, AskingSerde)]

    async def prepare(self) -> None:
        """Before `of`, which must not block: a serde may have to ask somebody. Raises SerializationError."""
        for serde, part in self._unprepared:
            await serde.prepare_write(self._topic, part)
        self._unprepared = []

    def of(self, message: Message, result: Any) -> Sequence[Outgoing]:
        """Raises SerializationError."""
        if result is None:
            return ()
        return (
            [self._record(message, each) for each in result]
            if isinstance(result, list)
            else [self._record(message, result)]
        )

    def _record(self, message: Message, each: Any) -> Outgoing:
        if not isinstance(each, Output):
            return Outgoing(self._topic, self._values.serialize(each, self._topic, "value"), message.raw_key)
        key = message.raw_key if each.key is None else self._keys.serialize(each.key, self._topic, "key")
        value = self._values.serialize(each.value, self._topic, "value")
        return Outgoing(self._topic, value, key, headers_of(each.headers), each.partition, each.timestamp)
