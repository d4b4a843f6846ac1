"""What a broker lives in while it is tortured: virtual time, a disk that kills, helper threads that take their time.

One life of a broker is one event loop. Its clock jumps to the next timer instead of waiting, so an hour costs nothing
and every run of a seed is the same. Death is an exception that no handler may catch, raised by the disk at a chosen
operation; from then on the disk refuses everything, as it does to a dead process.
"""

import asyncio
import io
import selectors
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.context import Pending, RequestContext
from tailrace.catalogue import Audience, served_to
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import KafkaError
from tailrace.model.ports import Ports
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import build_batch
from tailrace.wire.schema import Message

DATA = "/data"
TURNS_MAX = 100_000  # of a loop in one life; some thousand are usual
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": DATA,
    "log.initial.task.delay.ms": "1500",
    "log.retention.check.interval.ms": "3000",
    "log.cleaner.backoff.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.segment.delete.delay.ms": "2000",
    "loop.lag.warning.ms": "1000000000",
}


class DeadError(BaseException):
    """The process is gone. Not an Exception: a dead process handles nothing."""


class FaultDisk(SimDisk):
    """Dies at the n-th operation from now that changes something; `operations_left` < 0 is never."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.operations_left = -1
        self.is_dead = False
        self.on_death: Callable[[], object] = lambda: None
        self.last_operation = ("", "")

    def check(self, operation: str, path: str) -> None:
        if self.is_dead:
            raise DeadError
        if operation not in ("read", "map", "list"):
            self.last_operation = operation, path
            if self.operations_left == 0:
                self.is_dead = True
                self.on_death()
                raise DeadError
            self.operations_left -= 1
        super().check(operation, path)

    def revive(self, random: Random, *, power_fails: bool) -> None:
        """The next process may begin. What was being written when the last one died may be there in part."""
        was_appending = self.is_dead and self.last_operation[0] == "append"
        self.is_dead = False
        self.operations_left = -1
        self.heal()
        if was_appending and self.last_operation[1].endswith(".log") and random.random() < 0.7:
            batch = build_batch([(0, 5, b"torn", b"v" * 40, ())])
            self.open(self.last_operation[1]).append([batch[: random.randrange(1, len(batch))]])
        if power_fails:
            self.power_loss(SimRandom(random.randrange(1 << 30)))
        else:
            self.crash()


class StuckError(BaseException):
    """A life goes on for ever: somebody waits for what will not happen, or tries again and again."""


def _describe(task: asyncio.Task[Any]) -> str:
    text = io.StringIO()
    task.print_stack(file=text)
    return text.getvalue()


class VirtualSelector(selectors.SelectSelector):
    """Never waits: time is moved to the next timer."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._clock = clock
        self._turns_left = TURNS_MAX

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everyone waits, and nothing will ever happen"
        self._turns_left -= 1
        if self._turns_left == 0:
            raise StuckError("\n".join(map(_describe, asyncio.all_tasks())))
        if timeout > 0:
            self._clock.advance_ms(timeout * 1000)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: SimClock) -> None:
        super().__init__(VirtualSelector(clock))
        self._virtual_clock = clock

    def time(self) -> float:
        return self._virtual_clock.monotonic_ms() / 1000


class SlowBackground:
    """Helper threads: a piece of work is done some time later, and several overtake each other."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def execute() -> None:
            try:
                result = work()
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        loop.call_later(self._random.choice((0, 0, 0.001, 0.005, 0.05, 0.4)), execute)
        return future


class NoNetwork:
    """Requests are handed to the handlers: nobody connects."""

    port = 9092

    async def listen(self, host: str, port: int, accept: Any, **options: Any) -> "NoNetwork":
        return self

    async def connect(self, host: str, port: int) -> Any:
        raise OSError("there is no network here")

    def close(self) -> None:
        pass


def make_broker(disk: SimDisk, clock: SimClock, random: Random, settings: dict[str, str]) -> Broker:
    ports = Ports(
        clock=clock,
        random=SimRandom(random.randrange(1 << 30)),
        disk=disk,
        network=NoNetwork(),
        background=SlowBackground(random),
    )
    return Broker(parse_broker_config({**SETTINGS, **settings}), ports)


async def call(broker: Broker, request: Message, version: int) -> Any:
    """As the dispatcher does it, without the bytes. KafkaError for a request that failed as a whole."""
    served = served_to(Audience.CLIENTS)[request.api_key]
    assert served.version_min <= version <= served.version_max
    handle = getattr(import_module(f"tailrace.broker.handlers.{served.module}"), served.function)
    context = RequestContext(
        api_key=request.api_key,
        api_version=version,
        correlation_id=1,
        client_id="torturer",
        peer="127.0.0.1:1",
        listener=broker.listeners[0],
    )
    answer = handle(broker, context, request)
    if asyncio.iscoroutine(answer):
        answer = await answer
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


__all__ = ["DATA", "DeadError", "FaultDisk", "KafkaError", "VirtualLoop", "call", "call_now", "make_broker"]
