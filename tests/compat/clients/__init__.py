"""What the tests ask of a client library: write these records, read those back.

Each module wraps one library as its documentation shows it, with no patience of its own: a wait that ends without
the expected records raises. Readers assign partitions by hand and never commit.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]

# Long enough for a busy machine of two cores; nothing that works comes near it.
DEADLINE_S = 20.0


class Sent(NamedTuple):
    """A record as a producer is given it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Received(NamedTuple):
    """A record as a consumer gave it back."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def as_sent(self) -> Sent:
        """The same record without its place in the log."""
        return Sent(self.key, self.value, self.headers, self.timestamp_ms)


class Client(Protocol):
    """One library under test."""

    name: str
    codecs: tuple[str, ...]

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Iterable[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        pause_s: float = 0.0,
    ) -> list[int]:
        """Write records to partition 0 in order, with a pause after each; return the offsets that were acknowledged
        (none for acks=0)."""
        ...

    def read(self, bootstrap: str, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        """Read count records of partition 0 from an offset on."""
        ...

    def read_since(self, bootstrap: str, topic: str, count: int, timestamp_ms: int) -> list[Received]:
        """Read count records of partition 0 from the first one at or after a time."""
        ...
