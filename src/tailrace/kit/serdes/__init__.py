"""Keys and values as bytes and back.

A `Serde` does both, for one type: `Bytes`, `Text`, `Json`. `ByType` writes what it gets by its type, and reads bytes.
`tailrace.kit.serdes.registry` has those whose schemas a schema registry keeps: `Avro`, `JsonSchema` and `Protobuf`.
"""

from tailrace.kit.serdes.plain import Bytes, ByType, Json, Text
from tailrace.kit.serdes.port import AskingSerde, DeserializationError, Part, Serde, SerializationError

__all__ = [
    "AskingSerde",
    "ByType",
    "Bytes",
    "DeserializationError",
    "Json",
    "Part",
    "Serde",
    "SerializationError",
    "Text",
]
