"""How many requests of one record a broker takes, from a client that costs next to nothing."""

from bench.blaster import answered_in_turns_per_second, answered_per_second
from bench.canned import produce_request, produce_response_bytes
from bench.versus.processes import Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import end_offset, leader_port, topic

SECTION = "Requests"
_VALUE_BYTES = 100
_ALL = -1
# Few enough that a broker which answers a connection's requests one by one gets to their end.
IN_FLIGHT = 500


def produce(running: Running, effort: Effort, replicas: int, connections: int) -> dict[str, float]:
    """Requests a second, acks=all: on so many connections, each of which waits for its answer; or, for none, on one
    with many in flight."""
    with topic(running, 1, replicas=replicas) as name:
        port = leader_port(running, name)
        request = produce_request(name, records=1, value_bytes=_VALUE_BYTES, acks=_ALL)
        response_bytes = produce_response_bytes(name)
        brokers_s = running.stopwatch()
        if connections:
            rate = answered_in_turns_per_second(port, request, response_bytes, effort.seconds, connections=connections)
        else:
            rate = answered_per_second(port, request, response_bytes, effort.seconds, in_flight_max=IN_FLIGHT)
        spent_s = brokers_s()
        # An answer that tells of an error has the same size: the log knows better.
        written = end_offset(running, name)
        if written < 0.9 * rate * effort.seconds:
            raise RuntimeError(f"{rate * effort.seconds:.0f} requests were answered and {written} records written")
        return {"": rate, "broker CPU us": spent_s / written * 1e6}


def _row(word: str, title: str, replicas: int, connections: int) -> Row:
    return Row(
        name=f"requests-rf{replicas}-{word}",
        title=f"1 record of 100 B, rf={replicas}, {title}",
        section=SECTION,
        unit="requests/s",
        measure=lambda running, effort: produce(running, effort, replicas, connections),
        brokers=replicas,
        opens=replicas == 1 and connections > 1,
    )


REQUESTS = tuple(
    _row(word, title, replicas, connections)
    for replicas in (1, 3)
    for word, title, connections in (
        ("pipelined", f"one connection, {IN_FLIGHT} in flight", 0),
        ("one-by-one", "one connection, one in flight", 1),
        ("100-connections", "100 connections, one in flight on each", 100),
    )
)
