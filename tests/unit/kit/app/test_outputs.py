"""What `process` writes: serdes that have to ask somebody are asked beforehand, and never on the loop."""

from typing import Any

import pytest

from tailrace.kit import Bytes, Message, SerializationError
from tailrace.kit.app.outputs import Outputs
from tailrace.kit.messages import Source


class Asking:
    """Fails if it is used before it has asked; its first question has no answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def prepare_write(self, topic: str, part: str) -> None:
        self.asked.append((topic, part))
        if len(self.asked) == 1:
            raise SerializationError("nobody answers")

    async def prepare_read(self, contents: Any, part: str) -> None:
        raise AssertionError("nothing is read")

    def serialize(self, value: Any, topic: str, part: str) -> bytes:
        assert len(self.asked) > 1, "it would have to ask now"
        return str(value).encode()

    def deserialize(self, data: Any, topic: str, part: str, headers: Any) -> Any:
        raise AssertionError("nothing is read")


async def test_a_serde_is_asked_until_it_knows_and_then_no_more():
    values = Asking()
    outputs = Outputs("bills", keys=Bytes(), values=values)
    message = Message(0, 0, b"ann", b"1", (), Source("orders", 0, Bytes(), Bytes()))
    with pytest.raises(SerializationError, match="nobody answers"):
        await outputs.prepare()
    for _ in range(3):
        await outputs.prepare()
        assert [(each.topic, each.key, each.value) for each in outputs.of(message, 7)] == [("bills", b"ann", b"7")]
    assert values.asked == [("bills", "value")] * 2
