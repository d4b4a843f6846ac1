"""Rows that other kinds of servers take part in, each with a client that speaks its protocol by hand.

They are asked for the same: records of 1 KB into one ordered stream, confirmed; the same back out of it; and one record
after the other. Their clients send ready bytes and count answers by a byte that each answer holds once, so that they
cost less than librdkafka does.
"""

import json
import re
import select
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import librdkafka
from bench.blaster import answered_in_turns_per_second
from bench.canned import produce_request, produce_response_bytes
from bench.versus.others import NATS, REDIS
from bench.versus.processes import Running
from bench.versus.rivals import KAFKA, TAILRACE
from bench.versus.rows import Effort, Row
from bench.versus.workloads.produce import BASE, write
from bench.versus.workloads.topics import create_topic, topic

SECTION = "Instead of Kafka"
NOTE = (
    "Not the same promises. Tailrace and Kafka confirm a batch that is in the page cache, and with rf=3 one that is on "
    "three brokers; NATS JetStream confirms each message that is in its file, synced every two minutes; Redis confirms "
    "what is in memory, writes its file with each turn and syncs it every second, and its replication does not wait. "
    "Redis streams have to fit into memory. NATS and Redis take single messages, pipelined here; the others take "
    "batches of 64 KB."
)
_VALUE_BYTES = 1_000
_ONE_STREAM = BASE._replace(partitions=1)
_MARK = b"\x01"
_VALUE = b"x" * (_VALUE_BYTES - 1) + _MARK
_IN_FLIGHT = 4_000
_JOINED = 64
_PULL = 1_000
_CONSUMED = 200_000
_KEPT = 768 << 20
_DEADLINE_S = 60.0


def produce(running: Running, effort: Effort) -> dict[str, float]:
    """MB/s of values, all confirmed, and what the server spent on each GB."""
    brokers_s = running.stopwatch()
    count, rate = _CLIENTS[running.rival].produce(running, effort.seconds, _IN_FLIGHT)
    return {"": rate * _VALUE_BYTES / 1e6, "broker CPU s/GB": brokers_s() / (count * _VALUE_BYTES / 1e9)}


def consume(running: Running, effort: Effort) -> dict[str, float]:
    """MB/s of values that are in memory, again and again for the length of a round, and what the server spent."""
    read = took_s = spent_s = 0.0
    while took_s < effort.seconds:
        rate, cpu_s = _CLIENTS[running.rival].consume(running)
        read, took_s, spent_s = read + _CONSUMED, took_s + _CONSUMED / rate, spent_s + cpu_s
    gigabytes = read * _VALUE_BYTES / 1e9
    return {"": gigabytes * 1e3 / took_s, "broker CPU s/GB": spent_s / gigabytes}


def one_by_one(running: Running, effort: Effort) -> dict[str, float]:
    """Records a second, each confirmed before the next."""
    brokers_s = running.stopwatch()
    count, rate = _CLIENTS[running.rival].produce(running, effort.seconds, 1)
    return {"": rate, "broker CPU us": brokers_s() / count * 1e6}


class _Client(NamedTuple):
    # (server, seconds, records in flight at most) -> records, records a second
    produce: Callable[[Running, float, int], tuple[int, float]]
    # -> records a second, the server's CPU seconds
    consume: Callable[[Running], tuple[float, float]]


def _kafka_produce(running: Running, seconds: float, in_flight: int) -> tuple[int, float]:
    with topic(running, 1, replicas=1) as name:
        if in_flight == 1:
            request = produce_request(name, records=1, value_bytes=_VALUE_BYTES, acks=-1)
            answer_bytes = produce_response_bytes(name)
            rate = answered_in_turns_per_second(running.port, request, answer_bytes, seconds, connections=1)
            return int(rate * seconds), rate
        return write(running, name, seconds, _ONE_STREAM)


def _kafka_consume(running: Running) -> tuple[float, float]:
    if SECTION not in running.kept:
        running.kept[SECTION] = create_topic(running, 1, replicas=1, warm=False)
        count = 0
        while count < _CONSUMED:
            count += write(running, running.kept[SECTION], 0.3, _ONE_STREAM)[0]
    settings = {"bootstrap_servers": running.bootstrap, "group_id": "versus", "enable_auto_commit": "false"}
    brokers_s = running.stopwatch()
    return librdkafka.consumed_per_second(running.kept[SECTION], _CONSUMED, **settings), brokers_s()


def _nats_produce(running: Running, seconds: float, in_flight: int) -> tuple[int, float]:
    with _nats_connected(running) as connection:
        connection.sendall(b"SUB confirmed 2\r\n")
        request = b"PUB records confirmed %d\r\n%s\r\n" % (_VALUE_BYTES, _VALUE)
        return _pipelined(connection, request, b"{", seconds, in_flight)


def _nats_consume(running: Running) -> tuple[float, float]:
    with _nats_connected(running) as connection:
        connection.sendall(b"SUB confirmed 2\r\n")
        request = b"PUB records confirmed %d\r\n%s\r\n" % (_VALUE_BYTES, _VALUE)
        _pipelined(connection, request, b"{", _DEADLINE_S, _IN_FLIGHT, count_max=_CONSUMED)
        settings = {"durable_name": "reader", "ack_policy": "none", "deliver_policy": "all"}
        _nats_ask(connection, "CONSUMER.DURABLE.CREATE.all.reader", {"stream_name": "all", "config": settings})
        connection.sendall(b"SUB pulled 3\r\n")
        wish = json.dumps({"batch": _PULL, "expires": int(_DEADLINE_S * 1e9)}).encode()
        pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.all.reader pulled %d\r\n%s\r\n" % (len(wish), wish)
        brokers_s = running.stopwatch()
        connection.sendall(pull * 2)
        begun = time.perf_counter()
        seen = pulled = 0
        while seen < _CONSUMED:
            seen += _received(connection, begun + _DEADLINE_S).count(_MARK)
            while pulled < seen // _PULL:
                connection.sendall(pull)
                pulled += 1
        return seen / (time.perf_counter() - begun), brokers_s()


def _nats_connected(running: Running) -> socket.socket:
    """With an empty stream that keeps as much as a warm topic does."""
    connection = socket.create_connection(("127.0.0.1", running.port), _DEADLINE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n')
    _nats_ask(connection, "STREAM.DELETE.all", {}, may_fail=True)
    settings = {"name": "all", "subjects": ["records"], "storage": "file", "max_bytes": _KEPT, "discard": "old"}
    _nats_ask(connection, "STREAM.CREATE.all", settings)
    return connection


def _nats_ask(connection: socket.socket, api: str, settings: dict[str, object], *, may_fail: bool = False) -> None:
    body = json.dumps(settings).encode()
    connection.sendall(b"PUB $JS.API.%s answers %d\r\n%s\r\n" % (api.encode(), len(body), body))
    answer = b""
    while b"MSG answers" not in answer or not answer.endswith(b"}\r\n"):
        answer += _received(connection, time.perf_counter() + _DEADLINE_S)
    if b'"error"' in answer and not may_fail:
        raise RuntimeError(f"NATS refused {api}: {answer[-500:]!r}")


def _redis_produce(running: Running, seconds: float, in_flight: int) -> tuple[int, float]:
    with _redis_connected(running) as connection:
        kept = str(_KEPT // _VALUE_BYTES).encode()
        request = _redis_command(b"XADD", b"records", b"MAXLEN", b"~", kept, b"*", b"v", _VALUE)
        return _pipelined(connection, request, b"$", seconds, in_flight)


def _redis_consume(running: Running) -> tuple[float, float]:
    with _redis_connected(running) as connection:
        add = _redis_command(b"XADD", b"records", b"*", b"v", _VALUE)
        written, _rate = _pipelined(connection, add, b"$", _DEADLINE_S, _IN_FLIGHT, count_max=_CONSUMED)
        position = b"0"
        seen = 0
        brokers_s = running.stopwatch()
        begun = time.perf_counter()
        while seen < written:
            read = _redis_command(b"XREAD", b"COUNT", b"%d" % _PULL, b"STREAMS", b"records", position)
            connection.sendall(read)
            wanted = min(_PULL, written - seen)
            parts, got = [], 0
            # The mark is a value's last byte, and the end of a line follows it.
            while got < wanted or not parts[-1].endswith(b"\r\n"):
                parts.append(_received(connection, begun + _DEADLINE_S))
                got += parts[-1].count(_MARK)
            seen += got
            position = re.findall(rb"(\d+-\d+)\r\n", b"".join(parts)[-2 * _VALUE_BYTES :])[-1]
        return seen / (time.perf_counter() - begun), brokers_s()


def _redis_connected(running: Running) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), _DEADLINE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_redis_command(b"DEL", b"records"))
    _received(connection, time.perf_counter() + _DEADLINE_S)
    return connection


def _redis_command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _pipelined(
    connection: socket.socket,
    request: bytes,
    mark: bytes,
    seconds: float,
    in_flight: int,
    *,
    count_max: int = 1 << 60,
) -> tuple[int, float]:
    """How many were answered, and how many a second. Every answer holds the mark once."""
    joined = min(_JOINED, in_flight)
    view = memoryview(request * joined)
    sent = answered = position = 0
    begun = time.perf_counter()
    connection.setblocking(False)
    while True:
        is_open = time.perf_counter() < begun + seconds and sent < count_max
        if not is_open and not position and answered == sent:
            break
        wants_out = position or (is_open and sent - answered <= in_flight - joined)
        readable, writable, _ = select.select([connection], [connection] if wants_out else [], [], _DEADLINE_S)
        if not readable and not writable:
            raise TimeoutError(f"{answered} of {sent} records were confirmed")
        if readable:
            answered += _received(connection, 0).count(mark)
        if writable:
            position += connection.send(view[position:])
            if position == len(view):
                sent, position = sent + joined, 0
    connection.settimeout(_DEADLINE_S)
    return answered, answered / (time.perf_counter() - begun)


def _received(connection: socket.socket, deadline: float) -> bytes:
    if deadline:
        connection.settimeout(max(0.001, deadline - time.perf_counter()))
    received = connection.recv(1 << 20)
    if not received:
        raise RuntimeError("the server closed the connection")
    if re.match(rb"-[A-Z]", received):  # Ids of records have a - before a number, and may be cut there.
        raise RuntimeError(f"the server refused: {received[:200]!r}")
    return received


_CLIENTS = {
    TAILRACE.name: _Client(_kafka_produce, _kafka_consume),
    KAFKA.name: _Client(_kafka_produce, _kafka_consume),
    NATS.name: _Client(_nats_produce, _nats_consume),
    REDIS.name: _Client(_redis_produce, _redis_consume),
}
INSTEAD = tuple(
    Row(
        name=f"instead-{word}",
        title=title,
        section=SECTION,
        unit=unit,
        measure=measure,
        rivals=(TAILRACE, KAFKA, NATS, REDIS),
        note=NOTE,
    )
    for word, title, unit, measure in (
        ("produce", "1 KB into one stream", "MB/s", produce),
        ("consume", "1 KB out of one stream", "MB/s", consume),
        ("one-by-one", "1 KB, one record after the other", "records/s", one_by_one),
    )
)
