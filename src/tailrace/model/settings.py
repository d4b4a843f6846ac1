"""What a setting is: its kind, default, bounds and documentation, and how Kafka's text for its value is parsed.

Owns the declaration language of the tables in model.config: a class body of `name: type = integer(default=...)`
lines is at once the table that DescribeConfigs and the documentation print and the typed, immutable view that the
code reads. The attribute is Kafka's name with '.' written as '_'.
Every refusal is a KafkaError INVALID_CONFIG that names the setting, the value, the reason and the remedy.
Never reads a file, and knows no single setting.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Self, dataclass_transform

from tailrace.model.errors import ErrorCode, KafkaError

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class Kind(IntEnum):
    """Kafka's types of values; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0  # of a setting that is kept and means nothing here
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
# Java's Integer.parseInt and Double.parseDouble; Python's own int() would also take "1_000". Plain strings, so that
# a pattern is compiled when it is first used and not at every start.
_WHOLE_NUMBER = r"[+-]?[0-9]+"
_DECIMAL_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


class Synonym:
    """A broker setting that gives a topic setting its default, and the factor between their units."""

    __slots__ = ("factor", "name")

    def __init__(self, name: str, factor: int = 1) -> None:
        self.name = name
        self.factor = factor


class Setting:
    """One row of a table. `required` rows have no default; `internal` rows are accepted but never listed."""

    __slots__ = (
        "also",
        "attribute",
        "broker_synonyms",
        "choices",
        "convert",
        "default",
        "doc",
        "dynamic",
        "inert",
        "internal",
        "kind",
        "maximum",
        "minimum",
        "name",
        "ours",
        "required",
        "scope",
        "sensitive",
        "unordered",
    )

    def __init__(
        self,
        kind: Kind,
        *,
        default: Any,
        doc: str,
        required: bool = False,
        minimum: float | None = None,
        maximum: float | None = None,
        also: int | None = None,
        choices: tuple[str, ...] = (),
        convert: Callable[[str], Any] | None = None,
        unordered: bool = False,
        dynamic: bool = False,
        sensitive: bool = False,
        internal: bool = False,
        inert: str = "",
        ours: bool = False,
        broker_synonyms: tuple[Synonym, ...] = (),
    ) -> None:
        self.name = ""
        self.attribute = ""
        self.scope = ""
        self.kind = kind
        self.default = default
        self.required = required
        self.minimum = minimum
        self.maximum = maximum
        # One value that is allowed though it lies outside the bounds, such as gzip's -1.
        self.also = also
        self.choices = choices
        # Turns the text of the value, or of each element of a list, into what the code reads; ValueError refuses it.
        self.convert = convert
        # A list whose order means nothing becomes a frozenset.
        self.unordered = unordered
        # Whether IncrementalAlterConfigs may change it while the broker runs. Topic settings all may.
        self.dynamic = dynamic
        self.sensitive = sensitive
        self.internal = internal
        # Why nothing reads it, where nothing does: values are checked and kept all the same.
        self.inert = inert
        # Kafka has no such setting.
        self.ours = ours
        self.broker_synonyms = broker_synonyms
        self.doc = f"{doc} {inert}" if inert else doc

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    def __repr__(self) -> str:
        return f"<{self.scope} setting {self.name}>"


def integer(*, default: int | None, doc: str, **rest: Any) -> Any:
    return Setting(Kind.INT, default=default, doc=doc, **rest)


def short(*, default: int, doc: str, **rest: Any) -> Any:
    return Setting(Kind.SHORT, default=default, doc=doc, **rest)


def long(*, default: int | None, doc: str, **rest: Any) -> Any:
    return Setting(Kind.LONG, default=default, doc=doc, **rest)


def double(*, default: float, doc: str, **rest: Any) -> Any:
    return Setting(Kind.DOUBLE, default=default, doc=doc, **rest)


def boolean(*, default: bool | None, doc: str, **rest: Any) -> Any:
    return Setting(Kind.BOOLEAN, default=default, doc=doc, **rest)


def string(*, default: str | None, doc: str, **rest: Any) -> Any:
    return Setting(Kind.STRING, default=default, doc=doc, **rest)


def items(*, default: tuple[Any, ...] | frozenset[str], doc: str, **rest: Any) -> Any:
    return Setting(Kind.LIST, default=default, doc=doc, unordered=isinstance(default, frozenset), **rest)


def required_integer(*, doc: str, **rest: Any) -> Any:
    return Setting(Kind.INT, default=None, doc=doc, required=True, **rest)


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(integer, short, long, double, boolean, string, items, required_integer),
)
class Config:
    """An immutable view of one table. The keyword constructor checks no bounds: it is for values that were parsed,
    and for tests."""

    SETTINGS: ClassVar[Mapping[str, Setting]]
    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, *, scope: str) -> None:
        rows = [value for value in vars(cls).values() if isinstance(value, Setting)]
        for row in rows:
            row.scope = scope
            # The view's values live in the instance; a row left on the class would answer for a missing one.
            delattr(cls, row.attribute)
        # A table may go on in a class that builds on another.
        cls.SETTINGS = {**getattr(cls, "SETTINGS", {}), **{row.name: row for row in rows}}
        cls._defaults = {row.attribute: row.default for row in cls.SETTINGS.values() if not row.required}

    def __init__(self, **values: Any) -> None:
        # A plain dict filled at once: cheaper to create than slots, and as fast to read.
        vars(self).update(self._defaults)
        vars(self).update(values)
        vars(self)["_given"] = frozenset(values)
        if len(vars(self)) != len(self.SETTINGS) + 1:
            known = {row.attribute for row in self.SETTINGS.values()}
            wrong = (set(values) - known) | (known - set(vars(self)))
            raise TypeError(f"{type(self).__name__}: unknown or missing settings: {', '.join(sorted(wrong))}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        """By value: whether a value was given or is the default makes no difference."""
        if not isinstance(other, Config):
            return NotImplemented
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        hidden = {row.attribute for row in self.SETTINGS.values() if row.sensitive}
        given = ", ".join(
            f"{name}={'(hidden)' if name in hidden else repr(vars(self)[name])}" for name in sorted(self.given)
        )
        return f"{type(self).__name__}({given})"

    @property
    def given(self) -> frozenset[str]:
        """The attributes that were set, as opposed to left at their default."""
        given: frozenset[str] = vars(self)["_given"]
        return given

    def value(self, setting: Setting) -> Any:
        return vars(self)[setting.attribute]

    def replace(self, **values: Any) -> Self:
        given = {name: vars(self)[name] for name in self.given}
        return type(self)(**{**given, **values})

    def _values(self) -> dict[str, Any]:
        return {row.attribute: vars(self)[row.attribute] for row in self.SETTINGS.values()}


def invalid(name: str, value: object, reason: str) -> KafkaError:
    """Kafka's own sentence, whose remedy is in the reason."""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {reason}")


def unknown(name: str, known: Iterable[str], *, what: str) -> KafkaError:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.7)
    hint = f". Did you mean {close[0]}?" if close else ""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {what} config name: {name}{hint}")


def parse_value(setting: Setting, text: str) -> Any:
    """Kafka's syntax of a value of that kind; raises KafkaError INVALID_CONFIG."""
    match setting.kind:
        case Kind.BOOLEAN:
            return _parse_boolean(setting, text.strip())
        case Kind.INT | Kind.LONG | Kind.SHORT:
            return _parse_whole(setting, text.strip())
        case Kind.DOUBLE:
            return _parse_double(setting, text.strip())
        case Kind.LIST:
            return _parse_list(setting, text.strip())
        case Kind.STRING | Kind.PASSWORD:
            return _parse_string(setting, text)


def format_value(setting: Setting, value: Any) -> str | None:
    """The text that parses to the value, as Kafka prints it; None for a setting without a value."""
    if value is None:
        return None
    match setting.kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return _format_double(value)
        case Kind.LIST:
            return ",".join(map(str, sorted(value) if setting.unordered else value))
        case _:
            return str(value)


def flatten(table: Mapping[str, Any]) -> dict[str, str]:
    """A parsed TOML document as setting names and texts. `log.dirs = [..]`, `[log]` with `dirs = [..]` and
    `"log.dirs" = ".."` are the same; where a setting's name is also the beginning of another's, as max.connections
    is of max.connections.per.ip, TOML itself asks for the quoted form."""
    values: dict[str, str] = {}
    _flatten_into(values, "", table)
    return values


def _flatten_into(values: dict[str, str], prefix: str, table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping):
            _flatten_into(values, name + ".", value)
        elif name in values:
            raise invalid(name, "(hidden)", "It is set twice: remove one of the two lines.")
        else:
            values[name] = _toml_text(name, value)


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_toml_text(name, element) for element in value)
    if isinstance(value, str | int | float):
        return str(value)
    kind = type(value).__name__
    raise invalid(name, f"(a {kind})", "Write a string, a number, true, false, or a list of these.")


def _parse_boolean(setting: Setting, text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise invalid(setting.name, text, "Expected value to be either true or false")


def _parse_whole(setting: Setting, text: str) -> int:
    bits = _BITS[setting.kind]
    # 20 characters hold every 64-bit number; the check keeps a megabyte of digits from being multiplied out.
    number = int(text) if len(text) <= 20 and re.fullmatch(_WHOLE_NUMBER, text) else None
    if number is None or not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise invalid(setting.name, text, f"Not a number of type {setting.kind.name}")
    _check_bounds(setting, number)
    return number


def _parse_double(setting: Setting, text: str) -> float:
    if not re.fullmatch(_DECIMAL_NUMBER, text):
        raise invalid(setting.name, text, "Not a number of type DOUBLE")
    number = float(text)
    _check_bounds(setting, number)
    return number


def _check_bounds(setting: Setting, number: float) -> None:
    if number == setting.also:
        return
    low, high = setting.minimum, setting.maximum
    if setting.also is not None and ((low is not None and number < low) or (high is not None and number > high)):
        reason = f"Value must be between {low} and {high} or equal to {setting.also}"
        raise invalid(setting.name, number, reason)
    if low is not None and number < low:
        raise invalid(setting.name, number, f"Value must be at least {low}")
    if high is not None and number > high:
        raise invalid(setting.name, number, f"Value must be no more than {high}")


def _parse_list(setting: Setting, text: str) -> tuple[Any, ...] | frozenset[Any]:
    elements = [element.strip() for element in text.split(",")] if text else []
    if "" in elements:
        raise invalid(setting.name, text, "Elements of the list must not be empty: remove the extra comma.")
    for element in elements:
        _check_choice(setting, element)
    values = tuple(_convert(setting, element) for element in elements)
    return frozenset(values) if setting.unordered else values


def _parse_string(setting: Setting, text: str) -> Any:
    # Kafka takes " gzip" for a setting with choices; elsewhere the blanks may be meant.
    stripped = text.strip() if setting.choices else text
    _check_choice(setting, stripped)
    return _convert(setting, stripped)


def _check_choice(setting: Setting, text: str) -> None:
    if setting.choices and text not in setting.choices:
        raise invalid(setting.name, text, f"String must be one of: {', '.join(setting.choices)}")


def _convert(setting: Setting, text: str) -> Any:
    if setting.convert is None:
        return text
    try:
        return setting.convert(text)
    except ValueError as error:
        raise invalid(setting.name, "(hidden)" if setting.sensitive else text, str(error)) from None


def _format_double(value: float) -> str:
    """As Java's Double.toString: an exponent from ten millions on and below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.16e}".partition("e")
        digits = digits.rstrip("0")
    if "." not in digits or digits.endswith("."):
        digits = digits.rstrip(".") + ".0"
    return f"{digits}E{int(exponent)}"
