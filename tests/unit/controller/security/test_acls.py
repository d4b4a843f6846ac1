"""CreateAcls and DeleteAcls as the controller decides them, and which ACLs a filter fits."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.controller.image import MetadataImage
from tailrace.controller.replay import Replay
from tailrace.controller.security.acls import matching
from tailrace.controller.snapshot import records_of
from tailrace.model.acls import ANY, MATCH, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from tests.unit.controller.cluster import CLUSTER_ID, Cluster

Creation = CreateAclsRequest.AclCreation
Filter = DeleteAclsRequest.DeleteAclsFilter
WRITE_ORDERS = Acl(Kind.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.WRITE, Permission.ALLOW)


def creation(acl: Acl = WRITE_ORDERS, **changes: Any) -> CreateAclsRequest.AclCreation:
    values: dict[str, Any] = {
        "resource_type": acl.kind,
        "resource_name": acl.name,
        "resource_pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
    return Creation(**values | changes)


def create(cluster: Cluster, *creations: CreateAclsRequest.AclCreation) -> list[int]:
    response = cluster.do(CreateAclsRequest(creations=list(creations)), CreateAclsResponse)
    return [result.error_code for result in response.results]


def filter_of(**wanted: Any) -> DeleteAclsRequest.DeleteAclsFilter:
    values: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return Filter(**values | wanted)


def test_an_acl_is_created_once() -> None:
    cluster = Cluster()
    assert create(cluster, creation(), creation()) == [0, 0]
    assert list(cluster.image.acls.values()) == [WRITE_ORDERS]
    before = cluster.image
    assert create(cluster, creation()) == [0]
    assert cluster.image.acls is before.acls


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_type": Kind.CLUSTER, "resource_name": "mine"},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"principal": "alice"},
        {"principal": "User:"},
        {"operation": ANY},
        {"operation": 0},
        {"permission_type": ANY},
    ],
    ids=str,
)
def test_what_means_nothing_is_refused_alone(changes: dict[str, Any]) -> None:
    cluster = Cluster()
    assert create(cluster, creation(**changes), creation()) == [ErrorCode.INVALID_REQUEST, 0]
    assert list(cluster.image.acls.values()) == [WRITE_ORDERS]


def test_odd_ones_are_taken() -> None:
    """A senseless operation for the resource, any text as a host, other kinds of principals, a prefix `*`."""
    cluster = Cluster()
    odd = [
        creation(resource_type=Kind.GROUP, operation=Operation.CREATE_TOKENS),
        creation(host="everywhere"),
        creation(principal="Group:people"),
        creation(resource_name="*", resource_pattern_type=PatternType.PREFIXED),
    ]
    assert create(cluster, *odd) == [0, 0, 0, 0]


def test_filters() -> None:
    prefix = WRITE_ORDERS._replace(name="ord", pattern_type=PatternType.PREFIXED)
    wildcard = WRITE_ORDERS._replace(name="*")
    group = WRITE_ORDERS._replace(kind=Kind.GROUP)
    bob = WRITE_ORDERS._replace(principal="User:bob", operation=Operation.READ, permission=Permission.DENY)
    cluster = Cluster()
    create(cluster, *map(creation, (WRITE_ORDERS, prefix, wildcard, group, bob)))

    def found(**wanted: Any) -> set[Acl]:
        return {acl for _, acl in matching(cluster.image.acls, filter_of(**wanted))}

    topic = {"resource_type_filter": Kind.TOPIC, "resource_name_filter": "orders"}
    assert found() == {WRITE_ORDERS, prefix, wildcard, group, bob}
    assert found(**topic) == {WRITE_ORDERS, bob}
    assert found(**topic, pattern_type_filter=MATCH) == {WRITE_ORDERS, prefix, wildcard, bob}
    assert found(**topic, pattern_type_filter=PatternType.PREFIXED) == set()
    assert found(resource_name_filter="ord", pattern_type_filter=PatternType.PREFIXED) == {prefix}
    assert found(principal_filter="User:bob") == {bob}
    assert found(permission_type=Permission.DENY) == {bob}
    assert found(operation=Operation.READ) == {bob}
    assert found(host_filter="10.0.0.1") == set()


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_that_means_nothing(field: str) -> None:
    with pytest.raises(KafkaError) as refused:
        matching({}, DescribeAclsRequest(**{**_plain(), field: 0}))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def _plain() -> dict[str, Any]:
    return {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def test_deletion_tells_what_it_has_deleted() -> None:
    cluster = Cluster()
    create(cluster, creation(), creation(principal="User:bob"))
    response = cluster.do(
        DeleteAclsRequest(
            filters=[filter_of(principal_filter="User:bob"), filter_of(host_filter="x"), filter_of(operation=0)]
        ),
        DeleteAclsResponse,
    )
    first, nothing, wrong = response.filter_results
    assert [each.principal for each in first.matching_acls] == ["User:bob"]
    assert (nothing.error_code, nothing.matching_acls) == (0, [])
    # Where nothing went wrong Kafka's message is null, not empty: kafkajs hands it to its caller.
    assert [each.error_message for each in (first, *first.matching_acls, nothing)] == [None, None, None]
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert list(cluster.image.acls.values()) == [WRITE_ORDERS]


def test_two_filters_may_fit_one_acl() -> None:
    cluster = Cluster()
    create(cluster, creation())
    response = cluster.do(DeleteAclsRequest(filters=[filter_of(), filter_of()]), DeleteAclsResponse)
    assert [len(result.matching_acls) for result in response.filter_results] == [1, 1]
    assert not cluster.image.acls
    assert not cluster.image.acl_ids


def test_a_snapshot_has_them() -> None:
    cluster = Cluster()
    create(cluster, creation(), creation(principal="User:bob"))
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, record in enumerate(record for group in records_of(cluster.image) for record in group):
        replay.replay_record(offset, record)
    replay.replay_control(cluster.image.next_offset)
    assert replay.image() == cluster.image
