"""What a broker lives in while it is tortured: a simulated host, whose clock is right, and nobody who connects.

Requests are handed to the handlers in the broker's own process. Its clock is right, so that what retention may take is
known to the millisecond.
"""

import asyncio
from random import Random
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.context import Pending, RequestContext
from tailrace.broker.failures import refuse
from tailrace.catalogue import CATALOGUE, load_handler
from tailrace.model.errors import KafkaError
from tailrace.sim.cluster import CLIENT_PORT, Node, World
from tailrace.sim.loop import SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace
from tailrace.wire.schema import Message

DATA = "/data"
_HOST = "broker"
SETTINGS = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{_HOST}:{CLIENT_PORT}",
    "log.dirs": DATA,
    "log.initial.task.delay.ms": "1500",
    "log.retention.check.interval.ms": "3000",
    "log.cleaner.backoff.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.segment.delete.delay.ms": "2000",
    "loop.lag.warning.ms": "1000000000",
}


def make_world(random: Random) -> World:
    decisions = SimRandom(random.randrange(1 << 30))
    loop = SimLoop(decisions.fork())
    return World(loop, SimNetwork(loop, decisions.fork()), decisions, Trace(loop))


def make_node(world: World) -> Node:
    node = Node(world, _HOST, SETTINGS)
    node.clock_drift_max = node.wall_skew_ms_max = 0.0
    return node


async def call(broker: Broker, request: Message, version: int) -> Any:
    """As the dispatcher does it, without the bytes."""
    served = CATALOGUE[request.api_key].for_clients
    assert served is not None
    assert served.version_min <= version <= served.version_max
    handle = load_handler(served)
    context = RequestContext(
        api_key=request.api_key,
        api_version=version,
        correlation_id=1,
        client_id="torturer",
        peer="127.0.0.1:1",
        listener=broker.listeners[0],
    )
    try:
        answer = handle(broker.services, context, request)
        if asyncio.iscoroutine(answer):
            answer = await answer
    except KafkaError as error:
        return refuse(request, version, error)
    if isinstance(answer, Pending):
        delivered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.deliver_to(lambda response: delivered.done() or delivered.set_result(response))
        answer = await delivered
    return answer


def call_now(broker: Broker, request: Message, version: int) -> Any:
    """A request that is answered in the same turn."""
    coroutine = call(broker, request, version)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError(f"{type(request).__name__} had to wait")
