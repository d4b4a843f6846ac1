"""A JSON Schema as the rest of Tailrace sees it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tailrace.schemas.json_schema.comparison import compare
from tailrace.schemas.json_schema.loader import Loader
from tailrace.schemas.json_schema.rules import COMPATIBLE, COMPATIBLE_IF_LENIENT, told
from tailrace.schemas.json_text import dump, load, ordered
from tailrace.schemas.limits import Limits
from tailrace.schemas.parsed import JSON, Difference, ParsedSchema


class JsonSchema(ParsedSchema):
    schema_type = JSON

    def __init__(self, text: str, references: Mapping[str, ParsedSchema], limits: Limits) -> None:
        self._limits = limits
        self.references = dict(references)
        self.json = load(text, limits.nesting_max)
        # A reference may use the references of its own.
        self.documents: dict[str, Any] = {}
        for name, each in references.items():
            assert isinstance(each, JsonSchema)
            self.documents |= {**each.documents, name: each.json}
        self._root = Loader(self.json, self.documents).root
        self.text = dump(self.json)

    def normalized(self) -> str:
        return dump(ordered(self.json))

    @property
    def top_fields(self) -> Collection[str]:
        found = self.json.get("properties") if isinstance(self.json, dict) else None
        return found.keys() if isinstance(found, dict) else ()

    def reads(self, writer: ParsedSchema, *, is_lenient: bool = False) -> Sequence[Difference]:
        assert isinstance(writer, JsonSchema)
        compatible = COMPATIBLE_IF_LENIENT if is_lenient else COMPATIBLE
        found = compare(writer._root, self._root, compatible, self._limits.pairs_max)
        return [told(rule, "#/" + "/".join(path)) for rule, path in found if rule not in compatible]
