"""docs/supported.md names the APIs of Kafka 4.3 for clients that a broker does not advertise, and no others."""

import re
import socket
import struct
from pathlib import Path

from tailrace.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "supported.md"
README = Path(__file__).parents[2] / "README.md"
DEADLINE_S = 30.0
KAFKA_KEYS = range(93)
# Kafka 4 has removed four; the others are asked by brokers and controllers of each other, on the controllers' listener.
NOT_FOR_CLIENTS = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
# Advertised where something receives what clients push, as in Kafka.
WITH_A_RECEIVER = {71, 72}


def test_the_list_is_what_the_broker_says(tailrace_broker: Broker):
    advertised = ask_advertised_keys(tailrace_broker)
    missing = set(KAFKA_KEYS) - advertised - NOT_FOR_CLIENTS - WITH_A_RECEIVER
    assert advertised.isdisjoint(NOT_FOR_CLIENTS)
    assert sorted(listed_keys()) == sorted(missing)


def test_the_readme_has_the_same_list():
    rows = re.findall(r"^\| ([^|]+) \|", PAGE.read_text().partition("## Not supported")[2], re.MULTILINE)
    missing = [re.split(r" on a broker|[:,(]", row)[0].strip() for row in rows if row not in ("what", "---")]
    readme = re.search(r"A broker does not support: (.*?)\.\n", README.read_text(), re.DOTALL)
    assert readme is not None
    listed = [re.sub(r" \(.*\)", "", " ".join(item.split())) for item in readme[1].split(";")]
    assert listed == missing
    assert "GSSAPI" in readme[1]


def listed_keys() -> list[int]:
    rows = PAGE.read_text().partition("## Not supported")[2]
    return [
        int(key)
        for keys in re.findall(r"^\|[^|]*\|([ 0-9,]+)\|", rows, re.MULTILINE)
        for key in keys.split(",")
        if key.strip()
    ]


def ask_advertised_keys(broker: Broker) -> set[int]:
    """ApiVersions, version 0: an error, and a key with its lowest and highest version for each API."""
    host, port = broker.bootstrap.rsplit(":", 1)
    request = struct.pack(">hhih", 18, 0, 1, -1)
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    correlation, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation, error) == (1, 0)
    return {struct.unpack_from(">hhh", answer, 10 + 6 * index)[0] for index in range(count)}
