"""The audit log: one line for each change, with who and what and the result, and without any secret."""

import logging
from typing import Any

import pytest

from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import CreateTopicsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import ApiVersionsRequest, MetadataRequest
from tailrace.wire.apis.security import AlterUserScramCredentialsRequest
from tests.unit.broker.world import Peer, create_topic, running


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.facts for record in caplog.records if record.name == "tailrace.audit" and record.args == ()]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.audit")


async def _set(peer: Peer, resource_type: int, name: str, **settings: str) -> list[int]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    answer = await peer.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return [each.error_code for each in answer.responses]


async def test_a_change_is_told_with_who_and_what_and_its_result(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        peer = await world.connect()
        await peer.request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        await peer.request(MetadataRequest(), 12)
        await create_topic(peer, "orders", partitions=3, retention_ms="77")
        again = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        await peer.request(CreateTopicsRequest(topics=[again]), 7)
        first, second = _lines(caplog)
        assert (str(first["principal"]), first["client"], first["host"]) == ("User:ANONYMOUS", "peer", "127.0.0.1")
        assert (first["api"], first["listener"], first["result"]) == ("CreateTopics", "PLAINTEXT", "NONE")
        assert "name=orders, num_partitions=3" in first["what"]
        assert "name=retention.ms, value=77" in first["what"]
        assert second["result"] == "TOPIC_ALREADY_EXISTS x1"


async def test_no_secret_is_written(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        peer = await world.connect()
        upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="ann", mechanism=1, iterations=8192, salt=b"pepper", salted_password=b"hunter2"
        )
        await peer.request(AlterUserScramCredentialsRequest(upsertions=[upsert]), 0)
        await _set(peer, ResourceType.BROKER, "1", ssl_key_password="hunter2", sasl_jaas_config="hunter2")
        await _set(peer, ResourceType.BROKER, "1", some_unknown_setting="hunter2", max_connections="77")
        text = str([record.__dict__ for record in caplog.records])
        assert "hunter2" not in text
        assert "pepper" not in text
        scram, _, last = _lines(caplog)
        assert "name=ann" in scram["what"]
        assert "name=max.connections, value=77" in last["what"]
        assert "name=some.unknown.setting, value=[hidden]" in last["what"]


async def test_a_flood_is_counted_instead_of_written(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"audit.log.max.lines.per.second": "3"}) as world:
        peer = await world.connect()
        for _ in range(40):
            await _set(peer, ResourceType.TOPIC, "none", retention_ms="1")
        # However slow this machine is: far fewer lines than requests, unless it took more than ten seconds.
        assert 3 <= len([line for line in _lines(caplog) if "api" in line]) < 36


async def test_the_level_of_its_logger_turns_it_off(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        peer = await world.connect()
        assert await _set(peer, ResourceType.BROKER_LOGGER, "1", tailrace_audit="WARN") == [ErrorCode.NONE]
        await create_topic(peer, "orders")
        assert _lines(caplog) == []
        # Who turned it off is told all the same.
        (told,) = [record for record in caplog.records if record.name == "tailrace.settings"]
        assert (told.facts["level"], str(told.facts["principal"])) == ("WARN", "User:ANONYMOUS")  # type: ignore[attr-defined]
        assert await _set(peer, ResourceType.BROKER_LOGGER, "1", tailrace_audit="INFO") == [ErrorCode.NONE]
        await create_topic(peer, "returns")
        assert [line["api"] for line in _lines(caplog)] == ["CreateTopics"]


async def test_a_long_request_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as world:
        peer = await world.connect()
        topics = [CreateTopicsRequest.CreatableTopic(name=f"t{number}", num_partitions=1) for number in range(500)]
        await peer.request(CreateTopicsRequest(topics=topics, validate_only=True), 7)
        (line,) = _lines(caplog)
        assert len(line["what"]) < 2100
