"""The authorizer and its index against the rules as they are written down, over random ACLs that come and go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.controller.security.authorizer import Authorizer, Reason, Resource
from tailrace.model.acls import Acl, Kind, Operation, PatternType, Permission
from tailrace.model.ids import Uuid
from tailrace.sim.rights.model import concerns, fits, is_allowed

# Few of each, so that they meet.
NAMES = st.sampled_from(["a", "ab", "abc", "abd", "b", "*", "*a", "hardcode", "h"])
PRINCIPALS = ["User:x", "User:y", "User:*", "Group:x"]
HOSTS = ["1.1.1.1", "2.2.2.2", "*"]
ASKED = [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER]
HELD = [*ASKED, Operation.ALL, Operation.ALTER_CONFIGS]
ACLS = st.builds(
    Acl,
    st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    NAMES,
    st.sampled_from(PatternType),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(HELD),
    st.sampled_from(Permission),
)
SETS = st.sets(ACLS, max_size=12)


def naive_by_kind(
    acls: set[Acl], principal: str, host: str, operation: Operation, kind: Kind, *, allows_without_acl: bool
) -> bool:
    """As the interface Authorizer of Kafka has it."""
    some = Resource(kind, "hardcode")
    if is_allowed(acls, principal, host, operation, some, allows_without_acl=allows_without_acl):
        return True
    mine = [
        acl
        for acl in acls
        if acl.kind is kind and concerns(acl, principal, host) and acl.operation in (operation, Operation.ALL)
    ]
    denied = {(acl.pattern_type, acl.name) for acl in mine if acl.permission is Permission.DENY}
    allowed = {(acl.pattern_type, acl.name) for acl in mine if acl.permission is Permission.ALLOW}
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for pattern_type, name in allowed:
        prefixes = {name[:end] for end in range(1, len(name) + 1)}
        is_named = pattern_type is PatternType.LITERAL and (pattern_type, name) in denied
        if not is_named and not any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(images=st.lists(SETS, min_size=1, max_size=4), allows_without_acl=st.booleans(), name=NAMES)
def test_the_authorizer_says_what_the_rules_say(images: list[set[Acl]], allows_without_acl: bool, name: str) -> None:
    authorizer = Authorizer(["User:root"], allows_without_acl=allows_without_acl)
    ids: dict[Acl, Uuid] = {}
    for acls in images:
        for acl in acls:
            ids.setdefault(acl, Uuid(len(ids).to_bytes(16, "big")))
        authorizer.index.follow({ids[acl]: acl for acl in acls})
        for principal in ("User:x", "User:y", "Group:x"):
            for host in ("1.1.1.1", "2.2.2.2"):
                for operation in ASKED:
                    resource = Resource(Kind.TOPIC, name)
                    decision = authorizer.decide(principal, host, operation, resource)
                    expected = is_allowed(
                        acls, principal, host, operation, resource, allows_without_acl=allows_without_acl
                    )
                    assert decision.is_allowed == expected
                    if isinstance(decision.rule, Acl):
                        assert decision.rule in acls
                        assert (decision.rule.permission is Permission.ALLOW) == expected
                        assert fits(decision.rule, resource)
                    assert authorizer.decide_by_kind(principal, host, operation, Kind.TOPIC) == naive_by_kind(
                        acls, principal, host, operation, Kind.TOPIC, allows_without_acl=allows_without_acl
                    )
        root = authorizer.decide("User:root", "1.1.1.1", Operation.READ, Resource(Kind.TOPIC, name))
        assert root == (True, Reason.SUPER_USER)
