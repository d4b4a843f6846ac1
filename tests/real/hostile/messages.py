"""Random requests of every API and version that the broker serves: sound ones, and sound ones with a few bytes changed.

Values are drawn from those that matter to a broker: names that exist or cannot, numbers at the ends of their range,
batches that are right or nearly so. The same seed gives the same requests.
"""

import random
import struct
import time
from typing import Any

from tailrace.catalogue import CATALOGUE
from tailrace.wire.apis import request_type
from tailrace.wire.codec.layout import layout
from tailrace.wire.frame import encode_request
from tailrace.wire.schema import Field, Message, Struct
from tests.real.raw import batch

SERVED = [
    (api.key, version)
    for api in CATALOGUE.values()
    if api.for_clients is not None
    for version in range(api.for_clients.version_min, api.for_clients.version_max + 1)
]

NAMES = [
    "fuzz-0",
    "fuzz-1",
    "fuzz.1",
    "1",
    "",
    "..",
    "a/b",
    "\0",
    "é\n\x1b[2J",
    "x" * 249,
    "y" * 250,
    "9" * 5000,
    "z" * 32767,
    "__consumer_offsets",
    "__cluster_metadata",
    "cleanup.policy",
    "compact",
    "retention.ms",
    "-1",
    "max.message.bytes",
    "compression.type",
    "gzip",
]
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
# Fields whose values would make a run long, or end it: waits, thousands of partitions, a broker that refuses everyone.
TAME: dict[str, list[Any]] = {
    "max_wait_ms": [0, 0, 3, -1],
    "timeout_ms": [0, 5, -1],
    "num_partitions": [1, 2, -1, 0, 1 << 30],
    "count": [2, 3, -1, 1 << 30],
    "replication_factor": [1, -1, 3],
    "resource_type": [2, 2, 8, 16, 0, -1],
    "acks": [0, 1, -1, -1, 5],
    # Not the broker itself: unregistered, it would lead nothing until it has registered again.
    "broker_id": [2, 0, -1, 1 << 30],
}


class Messages:
    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self._random = random.Random(seed)
        self._topic_ids = topic_ids

    def request(self, api_key: int, version: int) -> Message:
        return self._instance(request_type(api_key), version)

    def frame(self, request: Message, version: int, correlation_id: int) -> bytes:
        client_id = self._random.choice(["raw", None, "", "q" * 1000, "a\nb"])
        parts = encode_request(request.api_key, version, correlation_id, client_id, request)
        return b"".join(bytes(part) for part in parts)

    def damaged(self, frame: bytes) -> bytes:
        """With a size that is right, so that the damage gets as far as it can."""
        pick, data = self._random, bytearray(frame[4:])
        for _ in range(pick.choice([1, 1, 2, 5])):
            position = pick.randrange(8, len(data) + 1)
            match pick.randrange(3):
                case 0:
                    data[position : position + 1] = pick.randbytes(1)
                case 1:
                    del data[position : position + pick.randrange(1, 5)]
                case _:
                    data[position:position] = pick.randbytes(pick.randrange(1, 5))
        return struct.pack(">i", len(data)) + data

    def _instance(self, cls: type[Any], version: int) -> Any:
        plain, tagged, _ = layout(cls, version)
        fields = [*plain, *(field for field in tagged if self._random.random() < 0.5)]
        return cls(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Field, version: int) -> Any:
        pick = self._random
        if version in field.nullable and pick.random() < (0.8 if field.name == "transactional_id" else 0.15):
            return None
        if field.name in TAME:
            return pick.choice(TAME[field.name])
        if field.kind == "struct":
            return self._instance(field.item, version)
        if field.kind != "array":
            return self._scalar(field.kind)
        count = pick.choice([0, 1, 1, 1, 2, 3])
        struct_: type[Struct] | None = field.struct
        return [self._scalar(field.item) if struct_ is None else self._instance(struct_, version) for _ in range(count)]

    def _scalar(self, kind: str) -> Any:
        pick = self._random
        if kind in BITS:
            top = 1 << BITS[kind]
            return pick.choice([0, 0, 1, 2, -1, -1, -2, -3, 5, 100, top - 1, -top, pick.randrange(-top, top)])
        match kind:
            case "bool":
                return pick.random() < 0.5
            case "uuid":
                return pick.choice([bytes(16), pick.randbytes(16), *self._topic_ids])
            case "string":
                return pick.choice(NAMES)
            case "bytes":
                return pick.randbytes(pick.randrange(20))
            case "records":
                return self._records()
        return pick.randrange(1 << 16)

    def _records(self) -> bytes:
        pick = self._random
        values = [pick.randbytes(pick.randrange(50)) for _ in range(pick.randrange(1, 5))]
        good = batch(
            *values,
            attributes=pick.choice([0, 0, 0, 1, 2, 3, 4, 5, 8, 16, 32]),
            producer=pick.choice(
                [(-1, -1, -1), (-1, -1, -1), (pick.randrange(5), pick.randrange(2), pick.randrange(4))]
            ),
            timestamp_ms=pick.choice([int(time.time() * 1000), -1, 0, 1 << 62, -(1 << 63)]),
        )
        match pick.randrange(6):
            case 0:
                return pick.randbytes(pick.randrange(200))
            case 1:
                return good + good[: pick.randrange(len(good))]
            case 2:
                bad = bytearray(good)
                bad[pick.randrange(len(bad))] ^= 1 << pick.randrange(8)
                return bytes(bad)
        return good
