"""Avro's rules of schema resolution: can a reader's type read what a writer's type wrote?

The verdicts are those of Java's SchemaCompatibility, and so are the paths: `/fields/1/type`. A pair that is being
compared further up counts as compatible, so a recursive type ends.
"""

from tailrace.schemas.avro.types import NO_DEFAULT, Field, Type
from tailrace.schemas.parsed import Difference

# What a reader's type takes beside its own.
_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_NO_DEFAULT = "in the %s schema has no default value and is missing in the %s schema"
_NAMED = ("record", "error", "enum", "fixed")


class Comparison:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Difference]] = {}

    def of(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        if reader.kind not in ("record", "error"):
            return self._compare(reader, writer, path)
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []  # while it is under way
            self._known[pair] = self._compare(reader, writer, path)
        return self._known[pair]

    def _compare(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        if writer.kind == "union":
            return self._from_union(reader, writer, path)
        if reader.kind == "union":
            return self._into_union(reader, writer, path)
        if reader.kind != writer.kind:
            return [] if writer.kind in _PROMOTED.get(reader.kind, ()) else [_mismatch(reader, writer, path)]
        if reader.kind in ("array", "map"):
            key = "items" if reader.kind == "array" else "values"
            return self.of(reader.held(), writer.held(), f"{path}/{key}")
        if reader.kind not in _NAMED:
            return []
        found = _compare_names(reader, writer, path)
        match reader.kind:
            case "fixed":
                return found + _compare_sizes(reader, writer, path)
            case "enum":
                return found + _compare_symbols(reader, writer, path)
        return found + self._compare_fields(reader, writer, path)

    def _from_union(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        found = []
        for index, branch in enumerate(writer.branches):
            if reader.kind == "union":
                if self.of(reader, branch, f"{path}/{index}"):
                    found.append(_missing_branch(branch, f"{path}/{index}"))
            else:
                found += self.of(reader, branch, path)
        return found

    def _into_union(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        if any(not self.of(branch, writer, f"{path}/{index}") for index, branch in enumerate(reader.branches)):
            return []
        return [_missing_branch(writer, path)]

    def _compare_fields(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        written = {each.name: each for each in writer.fields}
        found: list[Difference] = []
        for index, each in enumerate(reader.fields):
            place = f"{path}/fields/{index}"
            matches = [written[name] for name in dict.fromkeys((each.name, *each.aliases)) if name in written]
            if len(matches) > 1:
                found.append(_ambiguous(each, matches, place))
            elif matches:
                found += self.of(each.type, matches[0].type, f"{place}/type")
            elif each.default is NO_DEFAULT and not (each.type.kind == "enum" and each.type.default is not None):
                found.append(_missing_default(each, place))
        return found


def _compare_names(reader: Type, writer: Type, path: str) -> list[Difference]:
    if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
        return []
    place = f"{path}/name"
    return [
        Difference(
            "NAME_MISMATCH",
            place,
            _text("NAME_MISMATCH", f"The name of the schema has changed (path '{place}')", f"expected: {writer.name}"),
            f"keep the name {writer.name}, or add it to the aliases of {reader.name}",
            f"keep the name {reader.simple_name}",
        )
    ]


def _compare_sizes(reader: Type, writer: Type, path: str) -> list[Difference]:
    if reader.size == writer.size:
        return []
    place = f"{path}/size"
    what = f"The size of FIXED type field at path '{place}' in the %s schema does not match with the %s schema"
    return [
        Difference(
            "FIXED_SIZE_MISMATCH",
            place,
            _text("FIXED_SIZE_MISMATCH", what, f"expected: {writer.size}, found: {reader.size}"),
            f"keep the size {writer.size}, or give the data a new field with another fixed type",
            f"keep the size {reader.size}, or give the data a new field with another fixed type",
        )
    ]


def _compare_symbols(reader: Type, writer: Type, path: str) -> list[Difference]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    place = f"{path}/symbols"
    listed = f"[{', '.join(missing)}]"
    what = f"The %s schema is missing enum symbols '{listed}' at path '{place}' in the %s schema"
    return [
        Difference(
            "MISSING_ENUM_SYMBOLS",
            place,
            _text("MISSING_ENUM_SYMBOLS", what, listed),
            f"keep the symbols {', '.join(missing)}, or give the enum {reader.name} a default",
            f"leave the symbols {', '.join(missing)} out until every reader knows them",
        )
    ]


def _mismatch(reader: Type, writer: Type, path: str) -> Difference:
    place = path or "/"
    what = f"The type (path '{place}') of a field in the %s schema does not match with the %s schema"
    info = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return Difference(
        "TYPE_MISMATCH",
        place,
        _text("TYPE_MISMATCH", what, info),
        f'keep {writer.kind}, or take both: ["{writer.kind}", "{reader.kind}"]',
        f"keep {reader.kind}",
    )


def _missing_branch(branch: Type, path: str) -> Difference:
    place = path or "/"
    what = f"The %s schema is missing a type inside a union field at path '{place}' in the %s schema"
    return Difference(
        "MISSING_UNION_BRANCH",
        place,
        _text("MISSING_UNION_BRANCH", what, f"reader union lacking writer type: {branch.kind.upper()}"),
        f"keep {branch.label} in the union",
        f"leave {branch.label} out of the union until every reader knows it",
    )


def _missing_default(each: Field, path: str) -> Difference:
    what = f"The field '{each.name}' at path '{path}' " + _NO_DEFAULT
    return Difference(
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        path,
        _text("READER_FIELD_MISSING_DEFAULT_VALUE", what, each.name),
        f"give the field {each.name} a default, or an alias with the name that it had",
        f"keep the field {each.name}: readers of the old schema have no default for it",
    )


def _ambiguous(each: Field, matches: list[Field], path: str) -> Difference:
    named = " and ".join(match.name for match in matches)
    what = f"The field '{each.name}' at path '{path}' in the %s schema matches several fields of the %s schema: {named}"
    return Difference(
        "READER_FIELD_AMBIGUOUS",
        path,
        _text("READER_FIELD_AMBIGUOUS", what, named),
        f"take an alias away from the field {each.name}, so that it stands for one of {named}",
        f"have only one of the fields {named}",
    )


def _text(rule: str, description: str, information: str) -> str:
    return f"{{errorType:'{rule}', description:'{description}', additionalInfo:'{information}'}}"
