"""The language of message declarations: the declaration is the type.

    class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
        key: str = string("0-3")
        key_type: int = int8("1+")
        coordinator_keys: list[str] = array(string, "4+")

One class describes a message in all its versions; handlers use it as it stands. Versions are written as in Kafka's
own schemas: "3", "0-6", "4+". Rules:

- Every field has Kafka's default, so a constructor takes keywords only and never requires one. A field that does
  not exist in the version being encoded is left off; one that is missing when decoding gets its default.
- A specifier returns, as far as a type checker knows, the value that it describes: a declaration whose annotation
  does not fit the wire (`str` for a nullable string) fails mypy.
- Structs are classes nested in their message, inner ones first. Python hides one such class from the body of the
  next, so a struct refers to another by name: `array("PartitionData", "0+")`. The message resolves the names.
- Creating a class costs microseconds: nothing is parsed or compiled until the class is used. Importing every
  declaration is part of the time to start a broker.

This module knows nothing of bytes: see `compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

# A version is an int16 on the wire: "9+" means up to here.
_LAST_VERSION = 32767
_NO_VERSIONS = range(0)
_ZERO_UUID = bytes(16)


def parse_versions(text: str | None) -> range:
    """ "3-13", "4" or "9+" as a range; None stands for no version at all."""
    if text is None:
        return _NO_VERSIONS
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), _LAST_VERSION + 1)
    return range(int(first), int(last if dash else first) + 1)


class _StructName(str):
    """The name of a struct, until its message is there to resolve it."""

    __slots__ = ()


class Field:
    """How one field looks on the wire, and in which versions it is there."""

    __slots__ = ("_nullable", "_versions", "default", "flexible", "item", "kind", "name", "tag")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        item: Any = None,
        flexible: bool = True,
    ) -> None:
        self.name = ""  # given by the class that the field is declared in
        self.kind = kind
        self.default = default
        self.tag = tag
        self.item = item  # of an array: the kind or the Struct class of its items; of a struct: its class
        self.flexible = flexible
        self._versions = versions
        self._nullable = nullable

    @property
    def versions(self) -> range:
        return parse_versions(self._versions)

    @property
    def nullable(self) -> range:
        return parse_versions(self._nullable)

    @property
    def struct(self) -> type[Struct] | None:
        """The class of the struct, or of the structs in an array."""
        return cast("type[Struct]", self.item) if isinstance(self.item, StructType) else None

    def fresh_default(self) -> Any:
        """The default as a new object, for lists and structs are mutable."""
        if self.default is None:
            return None
        if self.kind == "array":
            return []
        return self.item() if self.kind == "struct" else self.default


def int8(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("int8", versions, default, tag=tag))


def int16(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("int16", versions, default, tag=tag))


def uint16(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("uint16", versions, default, tag=tag))


def int32(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("int32", versions, default, tag=tag))


def uint32(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("uint32", versions, default, tag=tag))


def int64(versions: str, *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field("int64", versions, default, tag=tag))


def float64(versions: str, *, default: float = 0.0, tag: int | None = None) -> float:
    return cast("float", Field("float64", versions, default, tag=tag))


def boolean(versions: str, *, default: bool = False, tag: int | None = None) -> bool:
    return cast("bool", Field("bool", versions, default, tag=tag))


def uuid(versions: str, *, tag: int | None = None) -> bytes:
    """16 raw bytes; all zero by default."""
    return cast("bytes", Field("uuid", versions, _ZERO_UUID, tag=tag))


@overload
def string(versions: str, *, default: str = "", tag: int | None = None) -> str: ...
@overload
def string(
    versions: str, *, nullable: str, default: str | None = "", tag: int | None = None, flexible: bool = True
) -> str | None: ...
def string(
    versions: str,
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    flexible: bool = True,
) -> str | None:
    """With `flexible=False` it keeps the old form in flexible versions too (the client id of a request header)."""
    field = Field("string", versions, default, nullable=nullable, tag=tag, flexible=flexible)
    return cast("str | None", field)


@overload
def bytes_(versions: str, *, tag: int | None = None) -> bytes: ...
@overload
def bytes_(versions: str, *, nullable: str, default: bytes | None = b"", tag: int | None = None) -> bytes | None: ...
def bytes_(
    versions: str, *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> bytes | None:
    return cast("bytes | None", Field("bytes", versions, default, nullable=nullable, tag=tag))


def record_batches(versions: str, *, nullable: str | None = None) -> Any:
    """Kafka's type `records`: a memoryview of the received buffer when decoded; bytes or a slice of a file, which
    are sent uncopied, when encoded."""
    return Field("records", versions, None if nullable else b"", nullable=nullable)


@overload
def array(
    item: str, versions: str, *, nullable: str | None = None, default: None = ..., tag: int | None = None
) -> list[Any]: ...
@overload
def array(item: Callable[..., T], versions: str, *, tag: int | None = None) -> list[T]: ...
@overload
def array(
    item: Callable[..., T], versions: str, *, nullable: str, default: list[T] | None = ..., tag: int | None = None
) -> list[T] | None: ...
def array(
    item: str | Callable[..., T],
    versions: str,
    *,
    nullable: str | None = None,
    default: list[T] | None = [],  # noqa: B006  stands for "a new empty list", and is never handed out
    tag: int | None = None,
) -> list[Any] | None:
    """`item` is a Struct class, the name of one, or one of the specifiers above: `array(int32, "0+")`."""
    if isinstance(item, str):
        kind: Any = _StructName(item)
    else:
        kind = item if isinstance(item, StructType) else cast("Field", item("0+")).kind
    return cast("list[Any] | None", Field("array", versions, default, nullable=nullable, tag=tag, item=kind))


@overload
def struct(
    item: str, versions: str, *, nullable: str | None = None, default: None = ..., tag: int | None = None
) -> Any: ...
@overload
def struct(item: type[S], versions: str, *, tag: int | None = None) -> S: ...
@overload
def struct(item: type[S], versions: str, *, nullable: str, default: None = ..., tag: int | None = None) -> S | None: ...
def struct(
    item: str | type[S], versions: str, *, nullable: str | None = None, default: Any = ..., tag: int | None = None
) -> Any:
    """`item` is a Struct class or the name of one. Without `default=None` the default is the struct with all its own
    defaults."""
    kind = _StructName(item) if isinstance(item, str) else item
    return Field("struct", versions, default, nullable=nullable, tag=tag, item=kind)


# Fields that nobody should find in a log or a trace.
_SECRETS = frozenset({"auth_bytes", "salt", "salted_password", "stored_key", "server_key", "hmac"})


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns the declared fields into slots and keeps their specifications in `fields`."""

    fields: tuple[Field, ...]

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        record_type: int = -1,
        versions: str | None = None,
        flexible: str | None = None,
    ) -> StructType:
        fields = tuple(value for value in namespace.values() if type(value) is Field)
        for key in [key for key, value in namespace.items() if type(value) is Field]:
            namespace.pop(key).name = key
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["fields"] = fields
        if versions is not None:
            _resolve_names(namespace)
            namespace["api_key"] = api_key
            namespace["record_type"] = record_type
            namespace["versions"] = parse_versions(versions)
            namespace["flexible"] = parse_versions(flexible)
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_facts: Any) -> None:
        super().__init__(name, bases, namespace)


def _resolve_names(namespace: dict[str, Any]) -> None:
    """A name that no struct of the message has is a KeyError at import."""
    for value in namespace.values():
        if isinstance(value, StructType):
            for field in value.fields:
                if type(field.item) is _StructName:
                    field.item = namespace[field.item]


class Struct(metaclass=StructType):
    """A part of a message. Equal if all fields are equal; mutable, so not hashable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    fields: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        """Stands in until the first instance is made, then gives way to a constructor compiled for the class."""
        cls = type(self)
        assert cls not in (Struct, Message), "only declared messages and structs have instances"
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.fields)

    def __repr__(self) -> str:
        """Only what differs from the defaults, for most messages have many fields and few that matter."""
        shown = []
        for field in self.fields:
            value = getattr(self, field.name)
            if (field.kind == "records" or field.name in _SECRETS) and value is not None:
                shown.append(f"{field.name}=<{len(value)} bytes>")
            elif value != field.fresh_default():
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request, a response, a header or a stored record, in all its versions."""

    __slots__ = ()
    # The API of a request or response, and the type of a stored record within its topic; -1 for what has none.
    api_key: ClassVar[int]
    record_type: ClassVar[int]
    versions: ClassVar[range]
    # The versions with compact lengths and tagged fields (KIP-482).
    flexible: ClassVar[range]


_MISSING: Any = object()


def _compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    names: dict[str, Any] = {"MISSING": _MISSING}
    parameters, lines = [], []
    for index, field in enumerate(cls.fields):
        name, default = field.name, f"D{index}"
        is_mutable = field.kind in ("array", "struct") and field.default is not None
        names[default] = (list if field.kind == "array" else field.item) if is_mutable else field.default
        parameters.append(f"{name}={'MISSING' if is_mutable else default}")
        value = f"{default}() if {name} is MISSING else {name}" if is_mutable else name
        lines.append(f"    self.{name} = {value}\n")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):\n"
    exec(head + ("".join(lines) or "    pass\n"), names)  # noqa: S102  the source is made of declarations alone
    return cast("Callable[..., None]", names["__init__"])
