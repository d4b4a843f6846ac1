"""Word of brokers' deaths, from who has seen their processes end: the supervisor of a cluster on one machine.

    find     which incarnation it was: its data folders say, while their locks are held. A live process holds these, so
             the one that wrote there is dead, and nobody else can be taken for it
    report   asks one controller after the other until the active one has answered, with the rights of the dead: by its
             settings for calls of controllers

It is proof, on which the controller fences at once. Without it, as after a death of the whole machine, the session of
the broker ends in its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from tailrace.broker.cluster.peers import Way
from tailrace.broker.cluster.roles import decide_roles
from tailrace.client.connection import Address, ConnectionLimits, open_connection
from tailrace.controller.image import MetadataImage
from tailrace.log.identity import take_lock
from tailrace.log.run_marks import read_last_run
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.listeners import is_secured
from tailrace.model.ports import Disk, Ports
from tailrace.wire.apis.own import ReportDeathRequest, ReportDeathResponse

# While controllers elect one of them; after that the broker's port has told as much, or its successor has registered.
_TIMEOUT_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_LIMITS = ConnectionLimits(connect_timeout_ms=1000, request_timeout_ms=2000)
_ASK_NEXT = (ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


class Incarnation(NamedTuple):
    node_id: int
    broker_epoch: int


def find_dead(disk: Disk, folders: Sequence[str], node_id: int) -> Incarnation | None:
    """None if a process is at work there, or if the last one did not get as far as to note its epoch."""
    with ExitStack() as locks:
        try:
            for folder in folders:
                locks.callback(take_lock(disk, folder).release)
            epoch = max(read_last_run(disk, folder).broker_epoch for folder in folders)
        except (StorageError, OSError):
            return None
    return Incarnation(node_id, epoch) if epoch >= 0 else None


async def find_way(config: BrokerConfig, ports: Ports) -> Way:
    """How a broker with these settings calls controllers. KafkaError."""
    if not is_secured(config):
        return ports.network, None
    # Only who needs it pays for it.
    from tailrace.broker.auth.security import Security

    security = Security(config, ports, decide_roles(config), image=lambda: MetadataImage(config.cluster_id or ""))
    await security.open()
    return security.ways.to_controllers


async def report_deaths(way: Way, controllers: Sequence[Address], dead: Sequence[Incarnation]) -> ErrorCode:
    """The answer of the active controller; REQUEST_TIMED_OUT if none was found in time."""
    brokers = [ReportDeathRequest.Broker(broker_id=each.node_id, broker_epoch=each.broker_epoch) for each in dead]
    request = ReportDeathRequest(brokers=brokers)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while True:
                for address in controllers:
                    code = await _ask(way, address, request)
                    if code not in _ASK_NEXT:
                        return code
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT


async def _ask(way: Way, address: Address, request: ReportDeathRequest) -> ErrorCode:
    dialer, login = way
    try:
        connection = await open_connection(dialer, address, client_id="supervisor", limits=_LIMITS, login=login)
    except KafkaError as error:
        return error.code
    try:
        response = await connection.call(request, ReportDeathResponse)
        return ErrorCode(response.error_code)
    except KafkaError as error:
        return error.code
    finally:
        connection.close()
