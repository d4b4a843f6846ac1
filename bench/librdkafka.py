"""librdkafka by ctypes: batches of messages cross from Python into C in one call, so that Python is not the limit.

The library is the one that the confluent-kafka wheel brings along. Payloads are not copied into it: they outlive it.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

_ERROR_BYTES = 512
_PRODUCER, _CONSUMER = 0, 1
_QUEUE_FULL = -184
# Messages handed over in one call, and in the library's queue at most.
_CALL_MESSAGES = 2_000
_QUEUED_MESSAGES = 400_000
# The same where what is queued has to be waited for: some milliseconds of work.
_SHORT_CALL_MESSAGES = 200
_SHORT_QUEUE_MESSAGES = 4_000
_DEADLINE_S = 60.0
# Only what is critical: that a coordinator is not ready yet, and is asked again, is none of a figure's business.
_LOG_LEVEL = 2


class _Message(ctypes.Structure):
    # rd_kafka_message_t
    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("payload_bytes", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_bytes", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class Drained(NamedTuple):
    """Messages that came after the first ones, from their moment to that of the last; processes share the clock."""

    start: float
    end: float
    count: int

    @property
    def per_second(self) -> float:
        return self.count / (self.end - self.start)


def _load() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.parent.glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not found:
        raise RuntimeError("no librdkafka in the confluent-kafka package; install it as a wheel")
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, ctypes.c_size_t)),
        ("new", pointer, (number, pointer, text, ctypes.c_size_t)),
        ("destroy", None, (pointer,)),
        ("topic_new", pointer, (pointer, text, pointer)),
        ("topic_destroy", None, (pointer,)),
        ("produce_batch", number, (pointer, ctypes.c_int32, number, pointer, number)),
        ("poll", number, (pointer, number)),
        ("flush", number, (pointer, number)),
        ("outq_len", number, (pointer,)),
        ("queue_new", pointer, (pointer,)),
        ("queue_destroy", None, (pointer,)),
        ("consume_start_queue", number, (pointer, ctypes.c_int32, ctypes.c_int64, pointer)),
        ("consume_stop", number, (pointer, ctypes.c_int32)),
        ("consume_callback_queue", number, (pointer, number, pointer, pointer)),
        ("queue_get_consumer", pointer, (pointer,)),
        ("poll_set_consumer", number, (pointer,)),
        ("topic_partition_list_new", pointer, (number,)),
        ("topic_partition_list_add", pointer, (pointer, text, ctypes.c_int32)),
        ("topic_partition_list_destroy", None, (pointer,)),
        ("subscribe", number, (pointer, pointer)),
        ("consumer_close", number, (pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class _Handle:
    """One client of the library and one topic."""

    def __init__(self, kind: int, topic: str, settings: dict[str, Any]) -> None:
        self.library = _load()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = self.library.rd_kafka_conf_new()
        for name, value in ({"log_level": _LOG_LEVEL} | settings).items():
            if self.library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), error, _ERROR_BYTES):
                raise ValueError(error.value.decode())
        self.client = self.library.rd_kafka_new(kind, conf, error, _ERROR_BYTES)
        if not self.client:
            raise RuntimeError(error.value.decode())
        self.topic = self.library.rd_kafka_topic_new(self.client, topic.encode(), None)

    def close(self) -> None:
        self.library.rd_kafka_topic_destroy(self.topic)
        self.library.rd_kafka_destroy(self.client)


def produced_per_second(
    topic: str,
    value_bytes: int,
    seconds: float,
    *,
    partitions: int = 1,
    payloads: Sequence[bytes] = (),
    call_messages: int = _CALL_MESSAGES,
    queued_messages: int = _QUEUED_MESSAGES,
    on_start: Callable[[], None] = lambda: None,
    **settings: Any,
) -> tuple[int, float]:
    """How many messages were written to the first partitions, and how many a second, all acknowledged. All have the
    same value, or take turns with `payloads` of that size. Partitions take turns, with so many messages at once.
    `on_start` is called when each partition has its first one, which is when the clock starts."""
    handle = _Handle(
        _PRODUCER,
        topic,
        {
            "queue.buffering.max.messages": queued_messages,
            "queue.buffering.max.kbytes": 1 << 20,
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        },
    )
    library = handle.library
    values = [
        ctypes.create_string_buffer(payload, value_bytes)
        for payload in payloads or [bytes(index % 256 for index in range(value_bytes))]
    ]
    messages = (_Message * call_messages)()
    _fill(messages, values, value_bytes)
    # The first message waits for connection and metadata, which are not what is measured.
    for partition in range(partitions):
        _produce(handle, messages, 1, partition)
    if library.rd_kafka_flush(handle.client, int(_DEADLINE_S * 1000)):
        raise TimeoutError("the first message was not acknowledged")
    on_start()
    count = calls = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        if library.rd_kafka_outq_len(handle.client) > queued_messages - call_messages:
            library.rd_kafka_poll(handle.client, 1)
        else:
            count += _produce(handle, messages, call_messages, calls % partitions)
            calls += 1
    if library.rd_kafka_flush(handle.client, int(_DEADLINE_S * 1000)):
        raise TimeoutError("messages were not acknowledged")
    elapsed = time.perf_counter() - start
    handle.close()
    return count + partitions, count / elapsed


def _fill(messages: Any, values: Sequence[Any], value_bytes: int) -> None:
    addresses = [ctypes.addressof(value) for value in values]
    for index, message in enumerate(messages):
        message.payload, message.payload_bytes = addresses[index % len(addresses)], value_bytes


def _produce(handle: _Handle, messages: Any, count: int, partition: int) -> int:
    taken = handle.library.rd_kafka_produce_batch(handle.topic, partition, 0, messages, count)
    if taken < count:
        refused = next(message.error for message in messages[:count] if message.error)
        if refused != _QUEUE_FULL:
            raise RuntimeError(f"librdkafka refused a message with error {refused}")
        for message in messages[:count]:
            message.error = 0
        handle.library.rd_kafka_poll(handle.client, 1)
    return taken


def consumed_per_second(topic: str, count: int, *, partitions: int = 1, **settings: Any) -> float:
    """Messages a second from offset 0 of the first partitions, from the first one that came to the last."""
    handle = _Handle(_CONSUMER, topic, _consumer_settings(settings))
    library = handle.library
    queue = library.rd_kafka_queue_new(handle.client)
    for partition in range(partitions):
        library.rd_kafka_consume_start_queue(handle.topic, partition, 0, queue)
    drained = _drain(library, queue, count)
    for partition in range(partitions):
        library.rd_kafka_consume_stop(handle.topic, partition)
    library.rd_kafka_queue_destroy(queue)
    handle.close()
    return drained.per_second


def consumed_in_group_per_second(topic: str, count: int, **settings: Any) -> float:
    """The same as the only member of a group, which commits ten times a second and when it closes."""
    return consumed_in_group(topic, count, **settings).per_second


def consumed_in_group(topic: str, count: int, **settings: Any) -> Drained:
    """The same, and when it was."""
    in_group = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 100, **settings}
    handle = _Handle(_CONSUMER, topic, _consumer_settings(in_group))
    library = handle.library
    library.rd_kafka_poll_set_consumer(handle.client)
    topics = library.rd_kafka_topic_partition_list_new(1)
    library.rd_kafka_topic_partition_list_add(topics, topic.encode(), -1)
    if library.rd_kafka_subscribe(handle.client, topics):
        raise RuntimeError("librdkafka refused the subscription")
    library.rd_kafka_topic_partition_list_destroy(topics)
    queue = library.rd_kafka_queue_get_consumer(handle.client)
    drained = _drain(library, queue, count)
    library.rd_kafka_queue_destroy(queue)
    if library.rd_kafka_consumer_close(handle.client):
        raise RuntimeError("librdkafka could not close the consumer")
    handle.close()
    return drained


def _consumer_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1 << 20,
        "fetch.message.max.bytes": 4 << 20,
        "fetch.max.bytes": 64 << 20,
        "fetch.error.backoff.ms": 10,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def _drain(library: ctypes.CDLL, queue: Any, count: int) -> Drained:
    # The callback must exist and may do nothing: a function of the library itself that ignores its arguments.
    nothing = ctypes.cast(library.rd_kafka_version, ctypes.c_void_p)
    deadline = time.perf_counter() + _DEADLINE_S
    seen = first = 0
    start = 0.0
    while seen < count:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{seen} of {count} messages came")
        got = library.rd_kafka_consume_callback_queue(queue, 100, nothing, None)
        if got > 0 and not seen:
            start, first = time.perf_counter(), got
        seen += max(0, got)
    return Drained(start, time.perf_counter(), seen - first)


def ack_latencies_ms(
    topic: str, *, rate: int, seconds: float, value_bytes: int, partitions: int = 1, **settings: Any
) -> list[float]:
    """How long each acknowledgement took, by the library's own clock, at a steady rate and linger.ms=1."""
    latencies: list[float] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(error)
        latencies.append(message.latency() * 1000)

    producer = confluent_kafka.Producer(
        {"linger.ms": 1, "acks": "1", **{name.replace("_", "."): value for name, value in settings.items()}}
    )
    payload = bytes(value_bytes)
    for partition in range(partitions):
        producer.produce(topic, payload, partition=partition)
    producer.flush(_DEADLINE_S)
    start = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        while sent < elapsed * rate:
            producer.produce(topic, payload, partition=sent % partitions, on_delivery=delivered)
            sent += 1
        producer.poll(0)
        time.sleep(0.0005)
    if producer.flush(_DEADLINE_S):
        raise TimeoutError("messages were not acknowledged")
    return sorted(latencies)


def committed_per_second(topic: str, value_bytes: int, seconds: float, *, interval_ms: float, **settings: Any) -> float:
    """Messages a second of a producer that commits at this interval; with an interval of 0, of one that never does and
    is idempotent only. Its queue is short, since a commit has to wait for all that is in it."""
    is_transactional = interval_ms > 0
    name = {"transactional.id": f"bench-{topic}"} if is_transactional else {"enable.idempotence": "true"}
    handle = _Handle(
        _PRODUCER,
        topic,
        {
            "queue.buffering.max.messages": _SHORT_QUEUE_MESSAGES,
            "linger.ms": 1,
            "batch.num.messages": 100_000,
            **name,
            **{key.replace("_", "."): value for key, value in settings.items()},
        },
    )
    transaction = _Transaction(handle) if is_transactional else None
    payload = ctypes.create_string_buffer(value_bytes)
    messages = (_Message * _SHORT_CALL_MESSAGES)()
    _fill(messages, [payload], value_bytes)
    if transaction is not None:
        transaction.begin()
    _produce(handle, messages, 1, 0)
    if transaction is not None:
        transaction.commit()
        transaction.begin()
    elif handle.library.rd_kafka_flush(handle.client, int(_DEADLINE_S * 1000)):
        raise TimeoutError("the first message was not acknowledged")
    count = 0
    start = begun = time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        if transaction is not None and now - begun >= interval_ms / 1000:
            transaction.commit()
            transaction.begin()
            begun = time.perf_counter()
        if handle.library.rd_kafka_outq_len(handle.client) > _SHORT_QUEUE_MESSAGES - _SHORT_CALL_MESSAGES:
            handle.library.rd_kafka_poll(handle.client, 1)
        else:
            count += _produce(handle, messages, _SHORT_CALL_MESSAGES, 0)
    if transaction is not None:
        transaction.commit()
    elif handle.library.rd_kafka_flush(handle.client, int(_DEADLINE_S * 1000)):
        raise TimeoutError("messages were not acknowledged")
    elapsed = time.perf_counter() - start
    handle.close()
    return count / elapsed


class _Transaction:
    """The library's calls about transactions, which give an error object or nothing."""

    def __init__(self, handle: _Handle) -> None:
        self._handle = handle
        library = handle.library
        for name in ("init_transactions", "commit_transaction"):
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
        library.rd_kafka_begin_transaction.restype = ctypes.c_void_p
        library.rd_kafka_begin_transaction.argtypes = (ctypes.c_void_p,)
        library.rd_kafka_error_string.restype = ctypes.c_char_p
        library.rd_kafka_error_string.argtypes = (ctypes.c_void_p,)
        self._check(library.rd_kafka_init_transactions(handle.client, int(_DEADLINE_S * 1000)))

    def begin(self) -> None:
        self._check(self._handle.library.rd_kafka_begin_transaction(self._handle.client))

    def commit(self) -> None:
        self._check(self._handle.library.rd_kafka_commit_transaction(self._handle.client, int(_DEADLINE_S * 1000)))

    def _check(self, error: int | None) -> None:
        if error:
            raise RuntimeError(self._handle.library.rd_kafka_error_string(error).decode())
