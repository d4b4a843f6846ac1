"""Keys and values as bytes and back.

A `Serde` does both, for one type: `Bytes`, `Text`, `Json`. `ByType` writes what it gets by its type, and reads bytes.
Nothing here asks anybody over the network.
"""

from tailrace.kit.serdes.plain import Bytes, ByType, Json, Text
from tailrace.kit.serdes.port import DeserializationError, Part, Serde, SerializationError

__all__ = ["ByType", "Bytes", "DeserializationError", "Json", "Part", "Serde", "SerializationError", "Text"]
