"""Different requests on one connection, in turns, some of them in flight: a client that is not what is measured."""

import socket
import time
from typing import NamedTuple

from bench.growth.broker import Measured
from bench.measures import Plan

# Requests that are sent together; the answers to all of them come before the next ones are sent.
_TOGETHER = 50


class Answered(NamedTuple):
    per_second: float
    cpu_us: float  # the broker's, for each


def answered_in_order(subject: Measured, requests: list[bytes], response_bytes: int, plan: Plan) -> Answered:
    """Each request in its turn, from the first again after the last; all answers have the same size."""
    blocks = [b"".join(requests[at : at + _TOGETHER]) for at in range(0, len(requests), _TOGETHER)]
    counts = [len(requests[at : at + _TOGETHER]) for at in range(0, len(requests), _TOGETHER)]
    if len(requests) < _TOGETHER:
        blocks, counts = [blocks[0] * (_TOGETHER // len(requests))], [_TOGETHER // len(requests) * len(requests)]
    with socket.create_connection(("127.0.0.1", subject.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sink = bytearray(1 << 20)
        # Once for all, so that nothing is done for the first time.
        for block, count in zip(blocks, counts, strict=True):
            _ask(connection, block, count * response_bytes, sink)
        answered = turn = 0
        cpu_s, start = subject.cpu_s(), time.perf_counter()
        while time.perf_counter() - start < plan.seconds * plan.rounds:
            _ask(connection, blocks[turn], counts[turn] * response_bytes, sink)
            answered += counts[turn]
            turn = (turn + 1) % len(blocks)
        return Answered(answered / (time.perf_counter() - start), (subject.cpu_s() - cpu_s) / answered * 1e6)


def _ask(connection: socket.socket, block: bytes, answer_bytes: int, sink: bytearray) -> None:
    connection.sendall(block)
    while answer_bytes:
        received = connection.recv_into(sink)
        if not received or received > answer_bytes:
            raise RuntimeError("the broker answered with an error")
        answer_bytes -= received
