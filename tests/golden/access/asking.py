"""Asks the cases of a broker, and keeps of the answers what rights decide: codes of refusal, who is told of what, and
the bit fields of operations. Other codes only say that the request was let through: whether it then finds what it is
about is told elsewhere.

To record what Apache Kafka answers, into kafka.json, shares.json and controllers.json beside this file; a second word
records one of them alone:

    PYTHONPATH=src python -m tests.golden.access.asking CLASS_PATH [kafka|shares|controllers]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

from tailrace.model.acls import Acl
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetCommitRequest
from tailrace.wire.apis.security import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tailrace.wire.schema import Message, Struct
from tests.golden.access.cases import CASES, Case, variants
from tests.golden.access.controllers import CONTROLLER_CASES
from tests.golden.access.requests import GROUP, OTHER, TOPIC, TRANSACTIONAL_ID, State
from tests.golden.access.shares import JOINING, SHARE_CASES

RECORDED = Path(__file__).parent / "kafka.json"
RECORDED_OF_SHARES = Path(__file__).parent / "shares.json"
RECORDED_OF_CONTROLLERS = Path(__file__).parent / "controllers.json"
# Codes that rights decide; all others say that the request was let through.
_TOLD = {29, 30, 31, 53, 54, 55, 65}
_NAMES = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "key",
    "transactional_id",
    "resource_name",
    "resource_type",
    "index",
)
_BIT_FIELDS = ("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations")
# It matters whether these lists are told, and not what is in them. Lists of nodes have nothing to do with rights.
_LISTS = ("configs", "config_resources")
_OF_NODES = ("brokers", "node_endpoints", "nodes")
_TRIES = 200
_PAUSE_SECONDS = 0.05


class Asked(Protocol):
    async def request(self, request: Message, version: int) -> Any: ...


async def ask_all(
    root: Asked,
    client: Asked,
    cases: tuple[Case, ...] = CASES,
    *,
    keeper: Asked | None = None,
    has_share_group: bool = False,
) -> dict[str, Any]:
    """By case and variant, versions with the same answer together. `root` may do everything, `client` what the ACLs
    say, which are kept where `keeper` asks: `root` itself, if it asks at the same listener."""
    keeper = keeper or root
    state = await _prepare(root)
    if has_share_group:
        await _prepare_share_group(root)
    answers: dict[str, Any] = {}
    for case in cases:
        for variant in variants(case):
            await _set_acls(keeper, variant.acls)
            versions = range(case.versions[0], case.versions[1] + 1)
            by_version = {version: told(await client.request(case.build(state), version)) for version in versions}
            answers[f"{case.name} | {variant.name}"] = _by_range(by_version)
    await _set_acls(keeper, ())
    return answers


def _by_range(by_version: dict[int, Any]) -> dict[str, Any]:
    """`{"3-12": answer}`."""
    ranges: list[tuple[int, int, Any]] = []
    for version, answer in by_version.items():
        if ranges and ranges[-1][2] == answer:
            ranges[-1] = ranges[-1][0], version, answer
        else:
            ranges.append((version, version, answer))
    return {f"{first}-{last}": answer for first, last, answer in ranges}


def told(answer: Struct) -> Any:
    kept: dict[str, Any] = {}
    for field in answer.fields:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            if value in _TOLD:
                kept[field.name] = value
        elif field.name in _BIT_FIELDS or field.name in _NAMES:
            kept[field.name] = value
        elif field.name in _LISTS:
            kept[field.name] = bool(value)
        elif field.struct is not None and field.kind == "array" and field.name not in _OF_NODES:
            kept[field.name] = sorted((told(each) for each in value or ()), key=json.dumps)
    return kept


# ---- what is there


async def _prepare(root: Asked) -> State:
    topic = CreateTopicsRequest.CreatableTopic
    await root.request(
        CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in (TOPIC, OTHER)],
            timeout_ms=5000,
        ),
        7,
    )
    asked = MetadataRequest.MetadataRequestTopic
    ids: dict[str, bytes] = {}
    for _ in range(_TRIES):
        answer = await root.request(MetadataRequest(topics=[asked(name=name) for name in (TOPIC, OTHER)]), 12)
        ids = {each.name: each.topic_id for each in answer.topics if not each.error_code}
        if len(ids) == 2:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
        await _until_done(root, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    committed = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = [committed(name=name, partitions=[partition]) for name in (TOPIC, OTHER)]
    for group in (GROUP, "others-of-readers"):
        await _until_done(root, OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics), 8)
    for transactional_id in (TRANSACTIONAL_ID, "others-of-writers"):
        await _until_done(
            root, InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4
        )
    return State(ids)


async def _prepare_share_group(root: Asked) -> None:
    """It has read both topics, and has no members any more."""
    for request, version in JOINING:
        await _until_done(root, request, version)


async def _until_done(root: Asked, request: Message, version: int) -> None:
    codes: set[int] = set()
    for _ in range(_TRIES):
        codes = set(_codes(await root.request(request, version)))
        if codes == {0}:
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError(f"{type(request).__name__} was answered with {codes}")


def _codes(answer: Struct) -> list[int]:
    found: list[int] = []
    for field in answer.fields:
        value = getattr(answer, field.name)
        if field.name == "error_code":
            found.append(value)
        elif field.struct is not None and field.kind == "array":
            for each in value or ():
                found += _codes(each)
    return found


async def _set_acls(root: Asked, acls: tuple[Acl, ...]) -> None:
    """Exactly these; waits until the broker has them."""
    everything: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    everything |= {"permission_type": 1, "resource_name_filter": None, "principal_filter": None, "host_filter": None}
    await root.request(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**everything)]), 3)
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=acl.kind,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    if creations:
        answer = await root.request(CreateAclsRequest(creations=creations), 3)
        assert not any(result.error_code for result in answer.results), [each.error_message for each in answer.results]
    count = 0
    for _ in range(_TRIES):
        answer = await root.request(DescribeAclsRequest(**everything), 3)
        count = sum(len(resource.acls) for resource in answer.resources)
        if count == len(set(acls)):
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError(f"there are {count} ACLs, not {len(acls)}")


# ---- recording


async def log_in(client: Asked, user: str) -> None:
    await client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.request(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="root" password="secret" '
    'user_root="secret" user_alice="secret";'
)
# Of Kafka, and of ours where they are compared: nodes log in to controllers as root.
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
    "sasl.mechanism.controller.protocol": "PLAIN",
    "auto.create.topics.enable": "false",
}


async def _record(class_path: str, *only: str) -> None:
    from tests.apache_kafka import ApacheKafka
    from tests.unit.broker.world import Peer

    settings = SETTINGS | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "unstable.api.versions.enable": "true",
    }

    async def connect(address: str, user: str | None = None) -> Peer:
        host, _, port = address.rpartition(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
        if user is not None:
            await log_in(peer, user)
        return peer

    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(class_path, Path(folder), listeners={"INSIDE": "SASL_PLAINTEXT"}, settings=settings) as kafka,
    ):
        root = await connect(kafka.addresses["PLAINTEXT"])
        keeper, client = await connect(kafka.controller, "root"), await connect(kafka.controller, "alice")
        alice = await connect(kafka.addresses["INSIDE"], "alice")
        # In this order: the cases of brokers delete topics at their end.
        for path, asker, cases, where in (
            (RECORDED_OF_CONTROLLERS, client, CONTROLLER_CASES, keeper),
            (RECORDED_OF_SHARES, alice, SHARE_CASES, None),
            (RECORDED, alice, CASES, None),
        ):
            if not only or path.stem in only:
                has_share_group = cases is SHARE_CASES
                _write(path, await ask_all(root, asker, cases, keeper=where, has_share_group=has_share_group))


def _write(path: Path, recorded: dict[str, Any]) -> None:
    lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in sorted(recorded.items()))
    path.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    asyncio.run(_record(*sys.argv[1:]))
