"""BROKER_LOGGER: levels of the log that change while a node runs, with Kafka's names, codes and messages."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.controller.configs import Operation
from tailrace.controller.image import ResourceType
from tailrace.model import events
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.unit.broker.world import Peer, create_topic, running

SOURCES = Path(__file__).parents[4] / "src"
LOGGER_SOURCE = 6
VALID = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


@pytest.fixture(autouse=True)
def _levels_are_put_back() -> Iterator[None]:
    names = [None, *events.logger_names()]
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


async def _levels(peer: Peer, *keys: str) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configuration_keys=list(keys) or None
    )
    (result,) = (await peer.request(DescribeConfigsRequest(resources=[resource]), 4)).results
    assert (result.error_code, {config.config_source for config in result.configs}) == (0, {LOGGER_SOURCE})
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    return {config.name: config.value for config in result.configs}


def _resource(
    *changes: tuple[str, int, str | None], name: str = "1"
) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=logger, config_operation=operation, value=value)
            for logger, operation, value in changes
        ],
    )


async def _alter(peer: Peer, *changes: tuple[str, int, str | None], validate_only: bool = False, name: str = "1"):
    request = IncrementalAlterConfigsRequest(resources=[_resource(*changes, name=name)], validate_only=validate_only)
    (response,) = (await peer.request(request, 1)).responses
    return ErrorCode(response.error_code), response.error_message


def test_every_area_of_the_source_is_known_before_its_module_is_loaded() -> None:
    text = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    used = {f"tailrace.{area}" for area in re.findall(r'events\.logger\("([\w.]+)"\)', text)}
    assert len(used) > 30
    assert used <= set(events.logger_names())


async def test_a_level_changes_what_is_written_and_is_inherited_again_once_it_is_deleted(caplog) -> None:
    async with running() as world:
        peer = await world.connect()
        logging.getLogger("tailrace").setLevel("INFO")
        assert (await _levels(peer, "tailrace.flusher")) == {"tailrace.flusher": "INFO"}
        log = events.logger("flusher")
        for change, level, is_written in [
            (("tailrace.flusher", Operation.SET, "DEBUG"), "DEBUG", True),
            (("tailrace", Operation.SET, "ERROR"), "DEBUG", True),
            (("tailrace.flusher", Operation.DELETE, None), "ERROR", False),
            (("tailrace.flusher", Operation.SET, "TRACE"), "TRACE", True),
            (("tailrace.flusher", Operation.SET, "FATAL"), "FATAL", False),
        ]:
            assert await _alter(peer, change) == (ErrorCode.NONE, None)
            caplog.clear()
            log.debug("a small thing")
            assert bool(caplog.records) is is_written
            assert await _levels(peer, "tailrace.flusher") == {"tailrace.flusher": level}
        everything = await _levels(peer)
        assert {"root", "tailrace", "tailrace.audit", "tailrace.log.recovery"} <= set(everything)


async def test_nothing_changes_where_it_is_only_validated_or_one_part_is_wrong() -> None:
    async with running() as world:
        peer = await world.connect()
        before = await _levels(peer)
        good = ("tailrace.log", Operation.SET, "TRACE")
        assert (await _alter(peer, good, validate_only=True))[0] == ErrorCode.NONE
        assert (await _alter(peer, good, ("tailrace.lag", Operation.SET, "TRACE")))[0] == ErrorCode.INVALID_CONFIG
        assert await _levels(peer) == before


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("tailrace.nothing", 0, "INFO"), ErrorCode.INVALID_CONFIG, "Logger tailrace.nothing does not exist!"),
        (("tailrace.nothing", 1, None), ErrorCode.INVALID_CONFIG, "Logger tailrace.nothing does not exist!"),
        (
            ("tailrace.log", 0, "LOUD"),
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of tailrace.log to LOUD as it is not a supported log level. {VALID}",
        ),
        (("root", 1, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        (
            ("tailrace.log", 2, "INFO"),
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            ("tailrace.log", 9, "INFO"),
            ErrorCode.INVALID_REQUEST,
            "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
        ),
    ],
)
async def test_what_is_refused(change: tuple[str, int, str | None], code: ErrorCode, message: str) -> None:
    async with running() as world:
        assert await _alter(await world.connect(), change) == (code, message)


async def test_loggers_of_another_node_and_those_of_the_old_request_are_refused() -> None:
    async with running() as world:
        peer = await world.connect()
        change = ("tailrace.log", Operation.SET, "INFO")
        refused = ErrorCode.INVALID_REQUEST
        assert await _alter(peer, change, name="2") == (refused, "Unexpected node id. Expected 1, but received 2")
        assert await _alter(peer, change, name="x") == (refused, "Node id must be an integer, but it is: x")
        old = AlterConfigsRequest.AlterConfigsResource(resource_type=ResourceType.BROKER_LOGGER, resource_name="1")
        (response,) = (await peer.request(AlterConfigsRequest(resources=[old]), 2)).responses
        assert response.error_code == refused


async def test_loggers_and_settings_in_one_request_are_each_answered_in_their_place() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        topic = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=[IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="5")],
        )
        wrong = _resource(("tailrace.log", Operation.SET, "INFO"), name="7")
        right = _resource(("tailrace.log", Operation.SET, "ERROR"))
        request = IncrementalAlterConfigsRequest(resources=[wrong, topic, right])
        answers = (await peer.request(request, 1)).responses
        assert [(each.resource_name, each.error_code) for each in answers] == [
            ("7", ErrorCode.INVALID_REQUEST),
            ("orders", 0),
            ("1", 0),
        ]
        assert world.broker.image.config(ResourceType.TOPIC, "orders") == {"retention.ms": "5"}
        assert (await _levels(peer, "tailrace.log")) == {"tailrace.log": "ERROR"}
