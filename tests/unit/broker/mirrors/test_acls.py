"""Which ACLs of a source follow, and under which names."""

import pytest

from tailrace.broker.mirrors.acls import mirrored_acls
from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.model.acls import Acl, Kind, Operation, PatternType, Permission

SETTINGS = parse_link_settings(
    {
        "bootstrap.servers": "x",
        "topics": "orders*",
        "groups": "billing",
        "topic.prefix": "dc1.",
        "acls": "User:ann,User:team-*",
    }
)


def acl(kind: Kind, name: str, principal: str = "User:ann", pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(kind, name, pattern, principal, "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    ("found", "here"),
    [
        (acl(Kind.TOPIC, "orders-eu"), acl(Kind.TOPIC, "dc1.orders-eu")),
        (
            acl(Kind.TOPIC, "orders-", "User:team-a", PatternType.PREFIXED),
            acl(Kind.TOPIC, "dc1.orders-", "User:team-a", PatternType.PREFIXED),
        ),
        (acl(Kind.GROUP, "billing"), acl(Kind.GROUP, "billing")),
        (acl(Kind.TOPIC, "payments"), None),
        (acl(Kind.TOPIC, "*"), None),
        (acl(Kind.GROUP, "readers"), None),
        (acl(Kind.TOPIC, "orders", "User:bob"), None),
        (acl(Kind.CLUSTER, "kafka-cluster"), None),
    ],
)
def test_what_follows(found, here):
    assert mirrored_acls([found], SETTINGS) == ([] if here is None else [here])


def test_a_fence_is_of_the_source_alone():
    everybody = parse_link_settings({"bootstrap.servers": "x", "acls": "User:*"})
    fence = Acl(Kind.TOPIC, "orders", PatternType.LITERAL, "User:*", "*", Operation.WRITE, Permission.DENY)
    assert mirrored_acls([fence, acl(Kind.TOPIC, "orders")], everybody) == [acl(Kind.TOPIC, "orders")]
