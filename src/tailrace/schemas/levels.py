"""The seven levels of compatibility: who has to be able to read whom, and against how many earlier versions that is
asked.
"""

from collections.abc import Iterator, Sequence

from tailrace.schemas.parsed import Difference, Incompatibility, InvalidSchema, ParsedSchema

LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")

_OTHER_TYPE = "Incompatible because of different schema type"


def check(
    level: str, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]], *, is_lenient: bool = False
) -> list[Incompatibility]:
    """Everything that keeps `new` from following `earlier` (version and schema, the newest first) at this level.

    BACKWARD: the new schema reads what the last version wrote. FORWARD: the last version reads what the new one writes.
    FULL: both. Levels that end in _TRANSITIVE ask it of every version.
    """
    if level not in LEVELS:
        raise ValueError(f"{level!r} is not a compatibility level: use one of {', '.join(LEVELS)}")
    if level == "NONE":
        return []
    judged = earlier if level.endswith("_TRANSITIVE") else earlier[:1]
    return [found for version, old in judged for found in _judge(level, new, version, old, is_lenient)]


def _judge(
    level: str, new: ParsedSchema, version: int, old: ParsedSchema, is_lenient: bool
) -> Iterator[Incompatibility]:
    if new.schema_type != old.schema_type:
        remedy = f"register it under another subject, or write it as {old.schema_type}"
        yield Incompatibility("SCHEMA_TYPE_CHANGED", "", version, _OTHER_TYPE, remedy)
        return
    try:
        if level.startswith(("FORWARD", "FULL")):
            for found in old.reads(new, is_lenient=is_lenient):
                yield _told(found, version, reader="old", writer="new")
        if level.startswith(("BACKWARD", "FULL")):
            for found in new.reads(old, is_lenient=is_lenient):
                yield _told(found, version, reader="new", writer="old")
    except RecursionError:
        raise InvalidSchema(
            "its types refer to each other too deeply to be compared: make the chain of types shorter"
        ) from None


def _told(found: Difference, version: int, *, reader: str, writer: str) -> Incompatibility:
    message = found.text.replace("%s", reader, 1).replace("%s", writer, 1)
    remedy = found.for_reader if reader == "new" else found.for_writer
    return Incompatibility(found.rule, found.path, version, message, remedy)
