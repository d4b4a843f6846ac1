"""Names of subjects and contexts. `:.ctx:orders-value` is the subject `orders-value` of the context `.ctx`; a name
without such a beginning is of the default context, `.`. `:.ctx:` alone is the context itself, for its settings; `:*:`
is every context.

Ids are given out in each context by itself, so the same number may be another schema in another context.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."
# Settings of this context hold in all contexts that have none.
GLOBAL_CONTEXT = ".__GLOBAL"
EVERY_CONTEXT = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    context: str
    name: str

    def __str__(self) -> str:
        return f"{context_prefix(self.context)}{self.name}"


def parse_subject(text: str) -> Subject:
    if text.startswith(":."):
        context, colon, name = text[1:].partition(":")
        return Subject(context, name if colon else "")
    if text.startswith(EVERY_CONTEXT):
        return Subject("*", text[len(EVERY_CONTEXT) :])
    return Subject(DEFAULT_CONTEXT, text)


def context_prefix(context: str) -> str:
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def context_of(text: str | None) -> str:
    return DEFAULT_CONTEXT if text is None else parse_subject(text).context


def normalize_subject(text: str) -> str:
    """The one way to write it: `:.:orders` is `orders`."""
    return str(parse_subject(text))


def normalize_context(text: str) -> str:
    """`ctx`, `.ctx` and `:.ctx:` as a prefix of subjects. Raises ValueError."""
    bare = text.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise ValueError(f"Context name '{bare}' cannot contain a colon")
    return context_prefix(bare if bare.startswith(".") else f".{bare}")


def is_context(text: str) -> bool:
    return not parse_subject(text).name


def is_top_level(text: str | None) -> bool:
    """Whether settings of that name are those of the default context: the global ones."""
    return text is None or parse_subject(text) == Subject(DEFAULT_CONTEXT, "")


def qualify(parent: str, name: str) -> str:
    """What a subject means by the name of another: one of its own context, unless it says which."""
    own = parse_subject(name)
    if own.context == DEFAULT_CONTEXT:
        return str(Subject(context_of(parent), own.name))
    return str(own)


def has_prefix(subject: str, prefix: str) -> bool:
    """`:*:` stands for any context."""
    if prefix.startswith(EVERY_CONTEXT):
        return parse_subject(subject).name.startswith(prefix[len(EVERY_CONTEXT) :])
    return subject.startswith(prefix)


def is_valid_subject(text: str, *, for_settings: bool = False) -> bool:
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in text):
        return False
    context, name = parse_subject(text)
    if name in _RESERVED:
        return False
    return for_settings or (context != GLOBAL_CONTEXT and name not in ("", "*"))
