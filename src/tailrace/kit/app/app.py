"""`App`: handlers that are declared, and run until the process is told to stop.

    app = App("billing", bootstrap_servers="127.0.0.1:9092")

    @app.consume("orders", values=Json())
    async def bill(message):
        ...

    app.run()

Every handler is a member of its group, in this process and in as many others as are started. SIGTERM and SIGINT stop
it: no more records are taken, those at work are finished and committed. How it goes is told by `status`, and by HTTP.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple, TypeVar, Unpack

from tailrace.kit.admin import Admin
from tailrace.kit.app.calling import Caller, Handler
from tailrace.kit.app.committing import Committer
from tailrace.kit.app.handling import Handling
from tailrace.kit.app.outputs import Outputs
from tailrace.kit.app.probes import ProbeServer
from tailrace.kit.app.seen import Deduplicate, SeenTopic
from tailrace.kit.app.shares.subscription import ShareSubscription
from tailrace.kit.app.status import Counts, Status
from tailrace.kit.app.subscription import LimitOptions, Limits, Subscription
from tailrace.kit.app.topics import KEPT_FOR_EVER, prepare_topics
from tailrace.kit.app.window import Order
from tailrace.kit.claims.claims import Claims
from tailrace.kit.clocks import MovableClock
from tailrace.kit.consumer import Consumer
from tailrace.kit.messages import TopicPartition
from tailrace.kit.options import Options, ParsedOptions, Value
from tailrace.kit.producer import Producer
from tailrace.kit.retries.plan import Retries, SettingError, parse_duration_ms
from tailrace.kit.serdes import Bytes, ByType, Serde
from tailrace.model.ports import Clock, Ports
from tailrace.real.cluster import open_cluster
from tailrace.real.ports import real_ports

H = TypeVar("H", bound=Handler)

# As much as any engine allows: the topic's own limit decides.
_RECORD_BYTES_MAX = 900 * 1024 * 1024
# A transaction of a process that was killed holds up readers of its topics, and whoever has its partitions next.
_TRANSACTION_TIMEOUT_MS = 15_000
_COMMIT_PATIENCE_MS = 60_000
# Of `Limits`, those that have parameters of their own.
_OTHERS = ("order", "batch")
# The consumer group that reads the retry topics of a share group.
RETRIES_GROUP = ".retries"


class _Declared(NamedTuple):
    """A handler, with everything that it was declared with."""

    topic: str
    group: str
    keys: Serde
    values: Serde
    retries: Retries
    limits: Limits
    timeout_ms: int | None
    deduplicate: Deduplicate | None
    claims: Claims | None
    outputs: Outputs | None = None
    is_shared: bool = False
    function: Handler = lambda _message: None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


class App:
    """`name` is the group of handlers that name none. Options are those of `Producer` and `Consumer`, and hold for
    all; a group begins at the earliest records unless auto.offset.reset says otherwise. `clock` is for tests."""

    def __init__(
        self,
        name: str,
        options: Options | None = None,
        /,
        *,
        probe_port: int | None = None,
        probe_host: str = "127.0.0.1",
        clock: Clock | None = None,
        **named: Value,
    ) -> None:
        self.name = name
        self._options: dict[str, Value] = {**(options or {}), **{_dotted(key): each for key, each in named.items()}}
        # What is wrong is told here, not at the start.
        if ParsedOptions(self._options, {}).config.engine != "tailrace":
            raise SettingError("handlers run on our own client alone, so far: leave the option engine out")
        self._ports: Ports = real_ports()
        self._clock = clock or self._ports.clock
        self._declared: list[_Declared] = []
        self._running: list[Subscription | ShareSubscription] = []
        self._admin: Admin | None = None
        self._is_stopping = asyncio.Event()
        self._probes: ProbeServer | None = None
        if probe_port is not None:
            answers = {"/health/live": self._live, "/health/ready": self._ready, "/status": self._told}
            self._probes = ProbeServer(answers, host=probe_host, port=probe_port)

    # --- what is declared

    def consume(
        self,
        topic: str,
        *,
        group: str | None = None,
        keys: Serde | None = None,
        values: Serde | None = None,
        retries: Retries | None = None,
        concurrency: int = 16,
        order: str | None = None,
        timeout: str | None = None,
        deduplicate: Deduplicate | None = None,
        claims: Claims | None = None,
        share: bool = False,
        batch: int | None = None,
        **limits: Unpack[LimitOptions],
    ) -> Callable[[H], H]:
        """The function below it gets every message of the topic. An async one runs on the loop, and fails if it takes
        longer than `timeout` ("30s"); another one runs in a thread. With `claims` a record that moves takes its object
        along. `order` is what is kept among messages: of a "key" (the default), of a "partition", or "none". With
        `share` the group is a share group (KIP-932): each message goes to any member, and is answered for by itself.
        With `batch` the function gets lists of so many messages at most, each of one partition. Further limits are
        those of `Limits`."""
        if batch is not None:
            _check_batch(batch, order, is_shared=share, deduplicate=deduplicate)
            order = order or "partition"
        if share:
            _check_shared(order, retries or Retries(), deduplicate)
        return self._declare(
            _Declared(
                topic,
                group or self.name,
                keys or Bytes(),
                values or Bytes(),
                retries or Retries(),
                _limits(concurrency, order or ("none" if share else "key"), limits, retries or Retries())._replace(
                    batch=batch or 0
                ),
                None if timeout is None else parse_duration_ms(timeout),
                deduplicate,
                claims,
                is_shared=share,
            )
        )

    def process(
        self,
        topic: str,
        target: str,
        *,
        group: str | None = None,
        keys: Serde | None = None,
        values: Serde | None = None,
        target_keys: Serde | None = None,
        target_values: Serde | None = None,
        retries: Retries | None = None,
        concurrency: int = 16,
        order: str = "key",
        timeout: str | None = None,
        deduplicate: Deduplicate | None = None,
        claims: Claims | None = None,
        exactly_once: bool = True,
        **limits: Unpack[LimitOptions],
    ) -> Callable[[H], H]:
        """As `consume`; what the function returns is written to `target`: nothing (None), a value, an `Outgoing`, or a
        list of them. It is written in one transaction with the offset behind the message, so that readers of committed
        records see it once, whatever dies."""
        if not exactly_once:
            raise SettingError(
                "process writes in transactions, and exactly_once=False would save nothing: leave it out, or use "
                "consume and a Producer of your own for at least once"
            )
        return self._declare(
            _Declared(
                topic,
                group or self.name,
                keys or Bytes(),
                values or Bytes(),
                retries or Retries(),
                _limits(concurrency, order, limits, retries or Retries()),
                None if timeout is None else parse_duration_ms(timeout),
                deduplicate,
                claims,
                Outputs(target, keys=target_keys or ByType(), values=target_values or ByType()),
            )
        )

    def _declare(self, declared: _Declared) -> Callable[[H], H]:
        def declare(function: H) -> H:
            if any((each.topic, each.group) == (declared.topic, declared.group) for each in self._declared):
                raise SettingError(
                    f"group {declared.group} has a handler of {declared.topic} already: each message goes to one of "
                    "them only. Give the second one a group of its own"
                )
            self._declared.append(declared._replace(function=function))
            return function

        return declare

    # --- how it runs

    def run(self) -> None:
        """Until SIGTERM or SIGINT, or until a handler fails for good, which is raised."""
        asyncio.run(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)

        def stop() -> None:
            for each in signals:  # A second one ends the process at once.
                loop.remove_signal_handler(each)
            self.stop()

        for each in signals:
            loop.add_signal_handler(each, stop)
        try:
            await self.serve()
        finally:
            for each in signals:
                loop.remove_signal_handler(each)

    def stop(self) -> None:
        """Takes no more records; `serve` returns when those at work are finished and committed."""
        self._is_stopping.set()
        for each in self._running:
            each.stop()

    async def serve(self) -> None:
        """As `run`, on a loop that runs already."""
        if not self._declared:
            raise SettingError("the application has no handlers: declare some with @app.consume(topic)")
        async with AsyncExitStack() as stack:
            self._admin = admin = await stack.enter_async_context(Admin(self._options))
            for declared in self._declared:
                await self._prepare(admin, declared)
            tasks = [asyncio.create_task(work) for declared in self._declared for work in self._works_of(declared)]
            stack.callback(self._running.clear)
            if self._probes is not None:
                await self._probes.start()
                stack.push_async_callback(self._probes.close)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            self.stop()
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def _prepare(self, admin: Admin, declared: _Declared) -> None:
        retries, topic = declared.retries, declared.topic
        wanted: dict[str, dict[str, str]] = {name: {} for name in retries.retry_topics(topic)}
        if retries.dead_letters:
            wanted[retries.dead_letter_name(topic)] = KEPT_FOR_EVER
        seen_topic = self._seen_topic(declared)
        if seen_topic is not None:
            wanted[seen_topic.topic] = seen_topic.config
        await prepare_topics(admin, topic, wanted)

    def _seen_topic(self, declared: _Declared) -> SeenTopic | None:
        if declared.deduplicate is None:
            return None
        name = f"{declared.group}.{declared.topic}.seen"
        return SeenTopic(declared.deduplicate, name, self._options, self._clock)

    def _works_of(self, declared: _Declared) -> list[Coroutine[Any, Any, None]]:
        """A share group delivers at once, so its retry topics are read by a consumer group, which can wait."""
        retry_topics = declared.retries.retry_topics(declared.topic)
        if not declared.is_shared:
            return [self._serve_in_group(declared, declared.group, [declared.topic, *retry_topics])]
        works = [self._serve_in_share_group(declared)]
        if retry_topics:
            works.append(self._serve_in_group(declared, f"{declared.group}{RETRIES_GROUP}", retry_topics))
        return works

    async def _serve_in_group(self, declared: _Declared, group: str, topics: Sequence[str]) -> None:
        clock, counts = self._clock, Counts()
        caller = Caller(declared.function, timeout_ms=declared.timeout_ms)
        subscription = Subscription(
            name=declared.name,
            group=declared.group,
            topic=declared.topic,
            handling=self._handling(declared, caller, counts),
            limits=declared.limits,
            clock=clock,
            counts=counts,
            seen_topic=self._seen_topic(declared),
        )
        self._begin(subscription)
        consumer = self._consumer(declared, group, topics, subscription)
        transactional_id = f"{self.name}-{group}-{declared.topic}-{self._ports.random.uuid().hex()}"

        async def open_producer() -> Producer:
            return await self._producer(transactional_id)

        committer = Committer(consumer, open_producer, patience_ms=_COMMIT_PATIENCE_MS, clock=clock)
        if isinstance(clock, MovableClock):
            clock.watch(subscription.look_again)
        try:
            await subscription.run(consumer, committer)
        finally:
            if isinstance(clock, MovableClock):
                clock.forget(subscription.look_again)
            caller.close()
            await committer.close()

    async def _serve_in_share_group(self, declared: _Declared) -> None:
        counts, options = Counts(), ParsedOptions(self._options, {})
        caller = Caller(declared.function, timeout_ms=declared.timeout_ms)
        cluster = open_cluster(
            options.bootstrap, security=options.security, client_id=options.config.client_id, limits=options.limits()
        )
        subscription = ShareSubscription(
            name=declared.name,
            group=declared.group,
            topic=declared.topic,
            start=str(self._options.get("auto.offset.reset", "earliest")),
            keys=declared.keys,
            values=declared.values,
            handling=self._handling(declared, caller, counts),
            limits=declared.limits,
            cluster=cluster,
            counts=counts,
        )
        self._begin(subscription)
        try:
            await subscription.run(lambda: self._producer(None))
        finally:
            caller.close()
            cluster.close()

    def _begin(self, subscription: Subscription | ShareSubscription) -> None:
        self._running.append(subscription)
        if self._is_stopping.is_set():
            subscription.stop()

    def _handling(self, declared: _Declared, caller: Caller, counts: Counts) -> Handling:
        return Handling(
            group=declared.group,
            topic=declared.topic,
            caller=caller,
            retries=declared.retries,
            outputs=declared.outputs,
            claims=declared.claims,
            clock=self._clock,
            counts=counts,
            takes_lists=declared.limits.batch > 0,
        )

    def _consumer(self, declared: _Declared, group: str, topics: Sequence[str], subscription: Subscription) -> Consumer:
        own: dict[str, Value] = {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        return Consumer(
            {"auto.offset.reset": "earliest", **self._options, **own},
            topics=topics,
            keys=declared.keys,
            values=declared.values,
            on_assigned=subscription.on_assigned,
            on_revoked=subscription.on_revoked,
            on_lost=subscription.on_lost,
        )

    async def _producer(self, transactional_id: str | None) -> Producer:
        own: dict[str, Value] = {"max.request.size": _RECORD_BYTES_MAX}
        if transactional_id is not None:
            own["transactional.id"] = transactional_id
        producer = Producer(
            {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **self._options, **own}, keys=Bytes(), values=Bytes()
        )
        await producer.start()
        return producer

    # --- what is told

    def status(self) -> list[Status]:
        return [each.status() for each in self._running]

    async def lag(self) -> dict[str, dict[TopicPartition, int]]:
        """Of each group, how many offsets lie between what this process has committed and the end of each partition
        that it has now; of a share group, how many records it is not done with."""
        found: dict[str, dict[TopicPartition, int]] = {}
        if self._admin is not None:
            for each in self._running:
                found.setdefault(each.group, {}).update(await each.lag(self._admin))
        return found

    @property
    def probe_port(self) -> int:
        if self._probes is None:
            raise SettingError("this application answers no probes: give it a probe_port")
        return self._probes.port

    async def _live(self) -> tuple[bool, Any]:
        slow = [str(each) for status in self.status() for each in status.slow]
        return not slow, {"live": not slow, "slow": slow}

    async def _ready(self) -> tuple[bool, Any]:
        is_ready = not self._is_stopping.is_set() and all(each.has_joined for each in self._running)
        return is_ready, {"ready": is_ready}

    async def _told(self) -> tuple[bool, Any]:
        lag: dict[str, dict[str, int]] = {}
        with suppress(Exception):  # Numbers are told even if no broker answers.
            lag = {group: {str(each): count for each, count in of.items()} for group, of in (await self.lag()).items()}
        return True, {"application": self.name, "handlers": [each.as_json() for each in self.status()], "lag": lag}


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _check_shared(order: str | None, retries: Retries, deduplicate: Deduplicate | None) -> None:
    if order not in (None, "none") or retries.keep_order:
        raise SettingError(
            "share=True has no order of its own: leave order and keep_order out, and let the group keep the order of "
            "keys by its setting share.key.order=true (brokers of Tailrace)"
        )
    if deduplicate is not None:
        raise SettingError(
            "share=True has no deduplication: copies of an event may go to several members. Leave one of the two out"
        )


def _check_batch(batch: int, order: str | None, *, is_shared: bool, deduplicate: Deduplicate | None) -> None:
    if batch < 1:
        raise SettingError("batch of a handler is 1 or more")
    if order == "key":
        raise SettingError('a batch has records of many keys: order is "partition" (the default) or "none"')
    if is_shared or deduplicate is not None:
        raise SettingError("batch goes neither with share=True nor with deduplicate: leave one of them out")


def _limits(concurrency: int, order: str, limits: LimitOptions, retries: Retries) -> Limits:
    unknown = sorted(limits.keys() - set(Limits._fields))
    if unknown:
        raise SettingError(f"{unknown[0]} is no setting of a handler: there are {', '.join(Limits._fields)}")
    if order not in list(Order):
        raise SettingError(f"order={order!r} is not known: it is {', '.join(map(str, Order))}")
    longest_ms = max((parse_duration_ms(step) for step in retries.steps), default=0)
    chosen = Limits(concurrency, Order(order), wait_max_ms=longest_ms)._replace(**limits)
    wrong = [
        name for name, value in chosen._asdict().items() if name not in _OTHERS and value < (name != "wait_max_ms")
    ]
    if wrong:
        raise SettingError(f"{wrong[0]} of a handler is 1 or more")
    if retries.keep_order and chosen.order is Order.NONE:
        raise SettingError('Retries(keep_order=True) keeps the order of keys: use it with order="key" or "partition"')
    return chosen
