"""The levels of a node's log, area by area, as settings of the resource BROKER_LOGGER (KIP-412).

They are the process's own: nothing is stored, nobody else is asked, and a restart forgets them, as in Kafka. Names are
those that stand in the log's lines; `root` is what libraries use. A logger without a level of its own has that of the
name above it. Levels have Kafka's names: what Python calls WARNING is WARN, and CRITICAL is FATAL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.controller.configs import Operation
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest

_log = events.logger("settings")

ROOT = "root"
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_VALID_LEVELS = ", ".join(sorted(_LEVELS))


def logger_levels() -> dict[str, str]:
    """The level of each logger, its own or an inherited one."""
    return {name: _level_name(_find(name).getEffectiveLevel()) for name in (ROOT, *events.logger_names())}


def alter_loggers(
    resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
    context: RequestContext,
    *,
    node_id: int,
    validate_only: bool,
) -> None:
    """All of it or nothing. Raises KafkaError. The log tells who it was, though the audit log may be turned off."""
    name = resource.resource_name
    if not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name != str(node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")
    _check(resource.configs)
    if validate_only:
        return
    for config in resource.configs:
        is_set = config.config_operation == Operation.SET
        _find(config.name).setLevel(_LEVELS[config.value or ""] if is_set else logging.NOTSET)
        _log.warning(
            "changed the level of a logger",
            logger=config.name,
            level=config.value if is_set else "inherited",
            principal=context.principal,
            peer=context.peer,
        )


def _check(configs: Iterable[IncrementalAlterConfigsRequest.AlterableConfig]) -> None:
    names = {ROOT, *events.logger_names()}
    for config in configs:
        match config.config_operation:
            case Operation.SET | Operation.DELETE if config.name not in names:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
            case Operation.SET if config.value not in _LEVELS:
                reason = (
                    f"Cannot set the log level of {config.name} to {config.value} as it is not a supported log level. "
                    f"Valid log levels are {_VALID_LEVELS}"
                )
                raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
            case Operation.DELETE if config.name == ROOT:
                reason = f"Removing the log level of the {ROOT} logger is not allowed"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            case Operation.SET | Operation.DELETE:
                pass
            case Operation.APPEND | Operation.SUBTRACT as known:
                reason = f"{Operation(known).name} operation is not allowed for the BROKER_LOGGER resource"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            case other:
                reason = f"Unknown operation type {other} is not allowed for the BROKER_LOGGER resource"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _find(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    """Of the highest level that is not above it; what is below all of them is the lowest."""
    return next((name for name, number in reversed(_LEVELS.items()) if number <= level), "TRACE")
