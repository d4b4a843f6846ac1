"""Who is told what, as Apache Kafka 4.3.0 does it: every API, asked by somebody with no right, each single right, some
denied, prefixes and wildcards, in every version that is served. `access/kafka.json` is what a Kafka broker with the
StandardAuthorizer answered, `access/controllers.json` what a controller did.
"""

import json
from typing import Any

import pytest

from tailrace.catalogue import CATALOGUE, Audience
from tailrace.wire.apis.keys import ApiKey
from tests.golden.access import asking
from tests.golden.access.asking import (
    RECORDED,
    RECORDED_OF_CONTROLLERS,
    RECORDED_OF_SHARES,
    ask_all,
    log_in,
)
from tests.golden.access.cases import CASES, Case
from tests.golden.access.controllers import CONTROLLER_CASES
from tests.golden.access.requests import OTHER, TOPIC, State
from tests.golden.access.shares import SHARE_CASES
from tests.unit.broker.access.secured_world import secured
from tests.unit.broker.cluster_world import running_cluster, simulated

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


SHARE_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


async def test_rights_are_kafkas() -> None:
    kafka = json.loads(RECORDED.read_text())
    async with secured(SETTINGS) as world:
        ours = json.loads(json.dumps(await ask_all(world.root, await world.connect_as("alice"))))
    assert ours.keys() == kafka.keys()
    assert {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]} == {}


async def test_rights_of_share_groups_are_kafkas() -> None:
    kafka = json.loads(RECORDED_OF_SHARES.read_text())
    async with secured(SETTINGS | SHARE_SETTINGS) as world:
        alice = await world.connect_as("alice")
        answers = await ask_all(world.root, alice, SHARE_CASES, has_share_group=True)
    ours = json.loads(json.dumps(answers))
    assert ours.keys() == kafka.keys()
    differing = {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]}
    # Kafka also names partitions of which there is nothing to tell, in some of its answers.
    assert all(
        refusals(ours[label]) == refusals(kafka[label]) != [] for label in differing if label.startswith("ShareF")
    )
    assert {label: both for label, both in differing.items() if not label.startswith("ShareFetch")} == {}


def refusals(by_version: dict[str, Any]) -> list[Any]:
    """What a member is told of partitions in any version."""
    answers = [
        json.dumps([each for topic in answer["responses"] for each in topic["partitions"] if each.get("error_code")])
        for answer in by_version.values()
    ]
    return sorted(set(answers))


@simulated
async def test_rights_at_controllers_are_kafkas() -> None:
    kafka = json.loads(RECORDED_OF_CONTROLLERS.read_text())
    settings = SETTINGS | asking.SETTINGS | ONE_NODE
    async with running_cluster("broker,controller", settings=settings) as world:
        keeper, client = [await world.connect(1, "CONTROLLER", host="127.0.0.1") for _ in range(2)]
        await log_in(keeper, "root")
        await log_in(client, "alice")
        answers = await ask_all(await world.connect(1), client, CONTROLLER_CASES, keeper=keeper)
    ours = json.loads(json.dumps(answers))
    assert ours.keys() == kafka.keys()
    differing = {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]}
    assert {label: both for label, both in differing.items() if not label.startswith(NOT_JUDGED_BY_KAFKA)} == {}
    assert all(ours["0-0"]["error_code"] == 31 and "error_code" not in theirs for ours, theirs in differing.values())


# Kafka's controllers tell anyone who has SCRAM credentials; we ask for DESCRIBE, as its brokers do.
NOT_JUDGED_BY_KAFKA = "DescribeUserScramCredentials"
ONE_NODE = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}


@pytest.mark.parametrize(
    ("audience", "cases"), [(Audience.CLIENTS, CASES + SHARE_CASES), (Audience.CONTROLLERS, CONTROLLER_CASES)]
)
def test_every_version_of_every_api_is_asked(audience: Audience, cases: tuple[Case, ...]) -> None:
    state = State({TOPIC: bytes(16), OTHER: bytes(16)})
    asked = {
        (case.build(state).api_key, version)
        for case in cases
        for version in range(case.versions[0], case.versions[1] + 1)
    }
    served = {
        (api.key, version)
        for api in CATALOGUE.values()
        if (listened := api.served_to(audience)) is not None and not api.key.is_own and api.key not in ELSEWHERE
        for version in range(listened.version_min, listened.version_max + 1)
    }
    assert served - asked == set()


# The first need no right; those of tokens are about whose a token is, and have rows of their own (`tokens`).
ELSEWHERE = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    # In tests/unit/broker/access/test_streams_rights.py.
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
}
