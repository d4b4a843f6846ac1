"""What a schema is to those who do not care which kind it is, and what is said of two that do not fit.

`ParsedSchema` is what `tailrace.schemas.parse` gives. Each kind (avro, json_schema, protobuf) has its own subclass, and
compares itself with an earlier one as a reader of what that one wrote. Nothing here touches the world: references are
handed in.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


class InvalidSchema(ValueError):  # noqa: N818
    """This text is not a schema, and the message says where and why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a reader cannot read what a writer wrote.

    `rule` is Confluent's name of it. `text` has `%s` where the reader's and then the writer's role go ("new", "old").
    """

    rule: str
    path: str
    text: str
    # What would pass, said to the author of the reader, and to the author of the writer: only the newer schema can be
    # changed.
    for_reader: str
    for_writer: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A difference with the version that it was found against, as a person is told of it."""

    rule: str
    path: str
    version: int
    # What Confluent's registry answers, word for word.
    message: str
    # Which change would pass.
    remedy: str


class ParsedSchema(ABC):
    """A valid schema, together with what it refers to."""

    schema_type: ClassVar[str]
    # As Confluent's registry would store it.
    text: str
    references: Mapping[str, "ParsedSchema"]

    @property
    def referenced(self) -> tuple[str, ...]:
        """The names of the references, in the order in which they were given."""
        return tuple(self.references)

    @property
    def canonical_key(self) -> str:
        """Schemas with the same key (and references to the same versions) are one schema, and have one id."""
        return self.text

    @abstractmethod
    def normalized(self) -> str:
        """The text with everything in a fixed order and every name in full."""

    def formatted(self, format_name: str) -> str:
        """The text in a format that this kind knows; for one that it does not, the text as it is, as Confluent does."""
        del format_name
        return self.text

    @property
    @abstractmethod
    def top_fields(self) -> Collection[str]:
        """The names of the fields of the outermost record, object or messages."""

    @abstractmethod
    def reads(self, writer: "ParsedSchema", *, is_lenient: bool = False) -> Sequence[Difference]:
        """Why data of `writer`, a schema of the same kind, could not be read with this one. Empty if it can. Only JSON
        Schema has a lenient policy."""
