"""An Avro schema as the rest of Tailrace sees it."""

from collections.abc import Collection, Mapping, Sequence

from tailrace.schemas.avro import text as texts
from tailrace.schemas.avro.compatibility import Comparison
from tailrace.schemas.avro.parser import Parser
from tailrace.schemas.avro.types import Type
from tailrace.schemas.json_text import load
from tailrace.schemas.limits import Limits
from tailrace.schemas.parsed import AVRO, Difference, InvalidSchema, ParsedSchema


class AvroSchema(ParsedSchema):
    schema_type = AVRO

    def __init__(self, text: str, references: Mapping[str, ParsedSchema], limits: Limits) -> None:
        self._limits = limits
        self.references = dict(references)
        known: dict[str, Type] = {}
        for each in references.values():
            assert isinstance(each, AvroSchema)
            known |= each.names
        parser = Parser(known)
        self.type = parser.parse(load(text, limits.nesting_max))
        # Every name that a schema which refers to this one may use.
        self.names: dict[str, Type] = known | parser.defined
        self._mentioned = tuple(known)
        if self.type.name in known and not parser.defined:
            raise InvalidSchema(f"it is only a name, {self.type.name}, which a reference already defines")
        self.text = texts.canonical(self.type, self._mentioned)

    def normalized(self) -> str:
        return AvroSchema(texts.normalized(self.type, self._mentioned), self.references, self._limits).text

    def formatted(self, format_name: str) -> str:
        """`resolved` has the types of the references written out."""
        return texts.canonical(self.type, ()) if format_name == "resolved" else self.text

    @property
    def top_fields(self) -> Collection[str]:
        return [each.name for each in self.type.fields]

    def reads(self, writer: ParsedSchema, *, is_lenient: bool = False) -> Sequence[Difference]:
        del is_lenient
        assert isinstance(writer, AvroSchema)
        return Comparison().of(self.type, writer.type, "")
