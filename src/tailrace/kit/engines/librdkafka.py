"""What both librdkafka engines share: options by its names, and its errors as ours. Needs confluent-kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka

from tailrace.client.lanes import ACKS_ALL, UnknownOutcomeError
from tailrace.client.security.settings import SECURITY_SETTINGS
from tailrace.client.transactions.errors import AbortableError, FencedError, OutcomeUnknownError, TransactionError
from tailrace.kit.options import ParsedOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import invalid

# Settings of Java's client that librdkafka has under other names, or not at all.
_JAVAS = frozenset(
    name
    for name in SECURITY_SETTINGS
    if name.startswith(
        (
            "sasl.jaas",
            "sasl.login",
            "sasl.oauthbearer.client",
            "ssl.enabled",
            "ssl.keystore.certificate",
            "ssl.keystore.key",
            "ssl.keystore.type",
            "ssl.truststore",
        )
    )
)

_FENCED = frozenset({confluent_kafka.KafkaError._FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# Of its own errors, those that have a name in the protocol.
_CODES = {
    confluent_kafka.KafkaError._TRANSPORT: ErrorCode.NETWORK_EXCEPTION,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN: ErrorCode.NETWORK_EXCEPTION,
    confluent_kafka.KafkaError._RESOLVE: ErrorCode.NETWORK_EXCEPTION,
    confluent_kafka.KafkaError._TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    confluent_kafka.KafkaError._MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    confluent_kafka.KafkaError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    confluent_kafka.KafkaError._FENCED: ErrorCode.PRODUCER_FENCED,
    confluent_kafka.KafkaError._STATE: ErrorCode.INVALID_TXN_STATE,
    confluent_kafka.KafkaError._AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
    confluent_kafka.KafkaError._MAX_POLL_EXCEEDED: ErrorCode.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError._INVALID_ARG: ErrorCode.INVALID_REQUEST,
}


def shared_settings(options: ParsedOptions) -> dict[str, Any]:
    config = options.config
    for name in options.texts:
        if name in _JAVAS:
            raise invalid(name, "(hidden)", "librdkafka does not know it: use its name, or engine=tailrace")
    return {name: text for name, text in options.texts.items() if name in SECURITY_SETTINGS} | {
        "bootstrap.servers": options.texts["bootstrap.servers"],
        "client.id": config.client_id,
        "socket.connection.setup.timeout.ms": max(1000, config.socket_connection_setup_timeout_ms),
        "retry.backoff.ms": max(1, config.retry_backoff_ms),
        "retry.backoff.max.ms": max(1, config.retry_backoff_max_ms),
        "log_level": 0,  # What matters is told by exceptions.
    }


def producer_settings(options: ParsedOptions) -> dict[str, Any]:
    config, producing = options.config, options.producing()
    settings = shared_settings(options) | {
        "acks": "all" if producing.acks == ACKS_ALL else producing.acks,
        "enable.idempotence": producing.idempotent,
        "compression.type": producing.compression.name.lower(),
        "linger.ms": config.linger_ms,
        "batch.size": config.batch_size,
        "queue.buffering.max.kbytes": 2**31 - 1,  # The engine keeps the bound.
        "queue.buffering.max.messages": 0,
        "message.max.bytes": max(1000, config.max_request_size + 1024),
        "delivery.timeout.ms": config.delivery_timeout_ms,
        "request.timeout.ms": config.request_timeout_ms,
        "partitioner": "murmur2_random",
        "topic.metadata.propagation.max.ms": 3000,
    }
    if config.transactional_id is not None:
        settings |= {
            "transactional.id": config.transactional_id,
            "transaction.timeout.ms": config.transaction_timeout_ms,
            # It wants to know of every record before the coordinator gives up.
            "delivery.timeout.ms": min(config.delivery_timeout_ms, config.transaction_timeout_ms),
        }
    return settings


def consumer_settings(options: ParsedOptions) -> dict[str, Any]:
    config = options.config
    settings = shared_settings(options) | {
        # It asks for one in any case; who has none neither joins nor commits.
        "group.id": config.group_id or "tailrace-kit",
        "group.protocol": config.group_protocol.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": config.auto_offset_reset,
        "isolation.level": config.isolation_level.name.lower(),
        "max.poll.interval.ms": config.max_poll_interval_ms,
        "fetch.min.bytes": max(1, config.fetch_min_bytes),
        "fetch.wait.max.ms": config.fetch_max_wait_ms,
        "fetch.max.bytes": config.fetch_max_bytes,
        "max.partition.fetch.bytes": max(1, config.max_partition_fetch_bytes),
        "metadata.max.age.ms": max(1, config.metadata_max_age_ms),
        "message.max.bytes": min(config.fetch_max_bytes, 1_000_000),
    }
    if config.group_instance_id is not None:
        settings["group.instance.id"] = config.group_instance_id
    if config.client_rack is not None:
        settings["client.rack"] = config.client_rack
    if config.group_protocol.value == "classic":
        settings |= {
            "session.timeout.ms": config.session_timeout_ms,
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
            # It takes no mixture of eager and cooperative ones.
            "partition.assignment.strategy": config.partition_assignment_strategy[0],
        }
    elif config.group_remote_assignor is not None:
        settings["group.remote.assignor"] = config.group_remote_assignor
    return settings


def call_in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """For a call that may never return: the end of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(found: Any, error: Exception | None) -> None:
        if error is None:
            answered.set_result(found)
        else:
            answered.set_exception(error)
            answered.exception()  # Whoever asked may have left.

    def run() -> None:
        found, failure = None, None
        try:
            found = call()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=run, daemon=True, name="tailrace-kit-librdkafka-call").start()
    return answered


async def ends_within(answered: asyncio.Future[Any], timeout_s: float) -> bool:
    done, _ = await asyncio.wait([answered], timeout=timeout_s)
    return bool(done)


def translate(error: Any, doing: str) -> KafkaError:
    """`error` is one of confluent_kafka's KafkaError."""
    number = error.code()
    code = _CODES.get(number)
    if code is None:
        code = ErrorCode(number) if number in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    message = f"{doing}: {error.str()}"
    # It does not say whether a record that has timed out was on its way.
    return (UnknownOutcomeError if code is ErrorCode.REQUEST_TIMED_OUT else KafkaError)(code, message)


def translate_ending(error: Any, doing: str) -> KafkaError:
    """Of what is asked of a transaction."""
    plain = translate(error, doing)
    if error.code() in _FENCED:
        return FencedError(ErrorCode.PRODUCER_FENCED, plain.message)
    if error.txn_requires_abort():
        return AbortableError(plain.message, plain.code)
    if error.fatal():
        return TransactionError(plain.code, plain.message)
    if error.retriable():
        return OutcomeUnknownError(plain.message, is_undecided=True)
    return plain
