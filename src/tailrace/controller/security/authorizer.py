"""What ACLs allow, decided as Kafka's StandardAuthorizer does.

    1. A super user may do everything.
    2. The ACLs that fit are those of the resource's kind whose pattern fits its name (literal and equal, literal `*`,
       or a prefix of it), for this principal or User:*, from this host or `*`, for this operation or ALL.
    3. One of them denies: denied. Else one allows: allowed; here READ, WRITE, DELETE and ALTER count for DESCRIBE too,
       and ALTER_CONFIGS for DESCRIBE_CONFIGS.
    4. Else, if no ACL at all has a pattern that fits the name, whoever the ACL is for, allow.everyone.if.no.acl.found
       decides; else denied.

`AclIndex` has the ACLs by holder (kind, principal, host), and those of a holder by pattern, with the operations as
bits. A decision asks four holders at most, each for the name, for `*` and for the prefixes of the lengths that it has:
however many ACLs others have, it does not look at them. Of two images the index takes only what differs.

    10,000 ACLs, a decision that is not cached: 1 to 5 us (bench/authorizer.py)
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from tailrace.model.acls import ANY_PRINCIPAL, IMPLIED_BY, WILDCARD, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.ids import Uuid


class Reason(Enum):
    """What decides where no ACL does."""

    SUPER_USER = "the principal is one of super.users"
    NO_ACL = "no ACL is about the resource (allow.everyone.if.no.acl.found)"
    DEFAULT = "no ACL allows it"


class Decision(NamedTuple):
    is_allowed: bool
    rule: Acl | Reason

    @property
    def rule_text(self) -> str:
        return str(self.rule) if isinstance(self.rule, Acl) else self.rule.value


class Resource(NamedTuple):
    kind: Kind
    name: str


# For each operation the bits of an ACL that allow it.
_ALLOWING = {
    operation: sum(1 << each for each in (operation, Operation.ALL, *IMPLIED_BY.get(operation, ())))
    for operation in Operation
}
_DENYING = {operation: 1 << operation | 1 << Operation.ALL for operation in Operation}
_SUPER = Decision(is_allowed=True, rule=Reason.SUPER_USER)
_NO_ACL = Decision(is_allowed=True, rule=Reason.NO_ACL)
_DEFAULT = Decision(is_allowed=False, rule=Reason.DEFAULT)
# Denied operations lie above the allowed ones in one number.
_DENY_SHIFT = 32


class _Patterns:
    """Patterns, each with the operations that are allowed and denied by it, found by the names that they fit."""

    __slots__ = ("_length_counts", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, int] = {}
        self.prefixed: dict[str, int] = {}
        self.lengths: tuple[int, ...] = ()  # Of the prefixes, in order.
        self._length_counts: Counter[int] = Counter()

    def change(self, pattern_type: PatternType, name: str, *, added: int = 0, removed: int = 0) -> None:
        patterns = self.literal if pattern_type is PatternType.LITERAL else self.prefixed
        had, bits = name in patterns, patterns.get(name, 0) & ~removed | added
        if bits:
            patterns[name] = bits
        else:
            patterns.pop(name, None)
        if patterns is self.prefixed and had != bool(bits):
            self._count_length(len(name), 1 if bits else -1)

    def _count_length(self, length: int, change: int) -> None:
        counts = self._length_counts
        was_known = length in counts
        counts[length] += change
        if not counts[length]:
            del counts[length]
        if was_known != (length in counts):
            self.lengths = tuple(sorted(counts))

    def fitting(self, name: str) -> Iterator[tuple[PatternType, str, int]]:
        if name in self.literal:
            yield PatternType.LITERAL, name, self.literal[name]
        if WILDCARD in self.literal and name != WILDCARD:
            yield PatternType.LITERAL, WILDCARD, self.literal[WILDCARD]
        size = len(name)
        for length in self.lengths:
            if length > size:
                return
            prefix = name[:length]
            if prefix in self.prefixed:
                yield PatternType.PREFIXED, prefix, self.prefixed[prefix]


class AclIndex:
    """The ACLs of one image at a time, made to be asked. `follow` takes it to another image."""

    def __init__(self) -> None:
        self.acls: Mapping[Uuid, Acl] = {}
        self._holders: dict[tuple[Kind, str, str], _Patterns] = {}
        # How many ACLs, of all holders, have the pattern.
        self._counts: Counter[tuple[Kind, PatternType, str]] = Counter()
        self._all: dict[Kind, _Patterns] = {}

    def follow(self, acls: Mapping[Uuid, Acl]) -> None:
        if acls is self.acls:
            return
        old, self.acls = self.acls, acls
        for acl_id in old.keys() - acls.keys():
            self._remove(old[acl_id])
        for acl_id in acls.keys() - old.keys():
            self._add(acls[acl_id])

    def _add(self, acl: Acl) -> None:
        self._holder(acl).change(acl.pattern_type, acl.name, added=_bit(acl))
        pattern = acl.kind, acl.pattern_type, acl.name
        if not self._counts[pattern]:
            self._all.setdefault(acl.kind, _Patterns()).change(acl.pattern_type, acl.name, added=1)
        self._counts[pattern] += 1

    def _remove(self, acl: Acl) -> None:
        holder = self._holder(acl)
        holder.change(acl.pattern_type, acl.name, removed=_bit(acl))
        if not holder.literal and not holder.prefixed:
            del self._holders[acl.kind, acl.principal, acl.host]
        pattern = acl.kind, acl.pattern_type, acl.name
        self._counts[pattern] -= 1
        if not self._counts[pattern]:
            del self._counts[pattern]
            self._all[acl.kind].change(acl.pattern_type, acl.name, removed=1)

    def _holder(self, acl: Acl) -> _Patterns:
        key = acl.kind, acl.principal, acl.host
        if key not in self._holders:
            self._holders[key] = _Patterns()
        return self._holders[key]

    def decide(self, principal: str, host: str, operation: Operation, resource: Resource) -> Decision | None:
        """None where no ACL says anything of this principal."""
        kind, name = resource
        denying, allowing = _DENYING[operation] << _DENY_SHIFT, _ALLOWING[operation]
        allowed: Acl | None = None
        for holder, patterns in self._held_by(kind, principal, host):
            for pattern_type, pattern, bits in patterns.fitting(name):
                if bits & denying:
                    named = _named(bits >> _DENY_SHIFT, (operation, Operation.ALL))
                    return Decision(
                        is_allowed=False, rule=Acl(kind, pattern, pattern_type, *holder, named, Permission.DENY)
                    )
                if allowed is None and bits & allowing:
                    named = _named(bits, (operation, *IMPLIED_BY.get(operation, ()), Operation.ALL))
                    allowed = Acl(kind, pattern, pattern_type, *holder, named, Permission.ALLOW)
        return None if allowed is None else Decision(is_allowed=True, rule=allowed)

    def has_pattern_for(self, resource: Resource) -> bool:
        patterns = self._all.get(resource.kind)
        return patterns is not None and next(patterns.fitting(resource.name), None) is not None

    def decide_by_kind(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether there is a pattern that allows the operation and is not wholly covered by one that denies it. What
        other operations imply does not count, as in Kafka."""
        bits_of_operation = 1 << operation | 1 << Operation.ALL
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[tuple[PatternType, str]] = set()
        for _holder, patterns in self._held_by(kind, principal, host):
            for pattern_type, named in (
                (PatternType.LITERAL, patterns.literal),
                (PatternType.PREFIXED, patterns.prefixed),
            ):
                for name, bits in named.items():
                    if bits >> _DENY_SHIFT & bits_of_operation:
                        denied.add((pattern_type, name))
                    if bits & bits_of_operation:
                        allowed.add((pattern_type, name))
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_covered(*pattern, denied) for pattern in allowed)

    def _held_by(self, kind: Kind, principal: str, host: str) -> Iterator[tuple[tuple[str, str], _Patterns]]:
        holders = self._holders
        for who in (principal, ANY_PRINCIPAL):
            for where in (host, WILDCARD):
                patterns = holders.get((kind, who, where))
                if patterns is not None:
                    yield (who, where), patterns


class Authorizer:
    """The rules of one node: its settings, and the ACLs of the image that it has seen last."""

    def __init__(self, super_users: Collection[str], *, allows_without_acl: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self.index = AclIndex()

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def decide(self, principal: str, host: str, operation: Operation, resource: Resource) -> Decision:
        if principal in self._super_users:
            return _SUPER
        decision = self.index.decide(principal, host, operation, resource)
        if decision is not None:
            return decision
        if self._allows_without_acl and not self.index.has_pattern_for(resource):
            return _NO_ACL
        return _DEFAULT

    def decide_by_kind(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether the operation is allowed on some resource of the kind, whatever it is."""
        if self.decide(principal, host, operation, Resource(kind, _SOME_NAME)).is_allowed:
            return True
        return self.index.decide_by_kind(principal, host, operation, kind)


# Kafka asks for a resource of this name first: it lets super users pass, and everyone where no ACL is about it.
_SOME_NAME = "hardcode"


def _bit(acl: Acl) -> int:
    return 1 << acl.operation << (_DENY_SHIFT if acl.permission is Permission.DENY else 0)


def _named(bits: int, operations: Iterable[Operation]) -> Operation:
    """That of the ACL which decides: the one for just this operation, if there are several."""
    return next(each for each in operations if bits & 1 << each)


def _is_covered(pattern_type: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    if pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
