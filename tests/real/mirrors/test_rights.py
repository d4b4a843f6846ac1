"""ACLs that follow from the source, and a source that is fenced by one."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tailrace.testing import Broker

from .test_handover import DEADLINE_S, FAST, has, make, mirror, until, write

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
EVERYBODY = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:*",
    "*",
    AclOperation.ALL,
    AclPermissionType.ALLOW,
)
ALL = AclBindingFilter(
    ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)

pytestmark = pytest.mark.long


def acls(admin: AdminClient) -> list[tuple[str, str, AclOperation]]:
    return [(each.name, each.principal, each.operation) for each in admin.describe_acls(ALL).result(DEADLINE_S)]


def test_acls_follow_and_a_source_is_fenced_by_one():
    with Broker(AUTHORIZED) as source, Broker(AUTHORIZED) as here:
        there = AdminClient({"bootstrap.servers": source.bootstrap})
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        make(source)
        write(source, "1")
        there.create_acls([EVERYBODY])[EVERYBODY].result(DEADLINE_S)
        words = ("--source", source.bootstrap, "--topics", "orders", "--acls", "User:*", *FAST)
        mirror(here, "create", "dc1", *words)
        until(lambda: has(here, "orders", 1), "it is mirrored")
        until(lambda: acls(admin) == [("orders", "User:*", AclOperation.ALL)], "the ACL follows")
        there.delete_acls([ALL])[ALL].result(DEADLINE_S)
        until(lambda: not acls(admin), "it is taken away again")

        mirror(here, "pause", "dc1")  # So that nothing closes the source but the ACL.
        mirror(here, "promote", "dc1", "--fence-source", "--wait", "1", code=1)
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            write(source, "too late")
        mirror(here, "promote", "dc1", "--fence-source", "--cancel")
        write(source, "2")
        mirror(here, "resume", "dc1")
        until(lambda: has(here, "orders", 2), "it goes on")
