"""A dead letter, and which ones somebody asks for. Letters of Kafka Connect and of other tools that use its headers are
read as well. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.kit.retries import headers
from tailrace.kit.retries.headers import Origin, Trail, read_trail
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record


class Letter(NamedTuple):
    partition: TopicPartition
    record: Record
    trail: Trail
    error_class: str
    error_message: str
    stack: str
    failed_ms: int


def open_letter(partition: TopicPartition, record: Record) -> Letter:
    said = {name: (value or b"").decode(errors="replace") for name, value in record.headers}

    def first(*names: str) -> str:
        return next((said[name] for name in names if name in said), "")

    connect = headers.CONNECT
    here = Origin(partition.topic, partition.partition, record.offset, record.timestamp)
    trail = read_trail(_connect_origin(said) or here, record.headers)
    failed = first(headers.FAILED)
    return Letter(
        partition,
        record,
        trail if trail.group else trail._replace(group=first(f"{connect}connector.name") or None),
        first(headers.CLASS, f"{connect}exception.class.name"),
        first(headers.MESSAGE, f"{connect}exception.message"),
        first(headers.STACK, f"{connect}exception.stacktrace"),
        int(failed) if failed.isdigit() else record.timestamp,
    )


def _connect_origin(said: dict[str, str]) -> Origin | None:
    place = [said.get(f"{headers.CONNECT}{name}", "") for name in ("topic", "partition", "offset")]
    return Origin(place[0], int(place[1]), int(place[2])) if place[0] and _are_numbers(place[1:]) else None


def _are_numbers(texts: list[str]) -> bool:
    return all(text.isascii() and text.isdigit() and len(text) <= 18 for text in texts)


class Choice(NamedTuple):
    """Everything that is given must hold."""

    group: str | None = None
    origin_topic: str | None = None
    # In its class or its message.
    error: str | None = None
    key: bytes | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    # Where the letters stand, as partition and offset.
    places: frozenset[tuple[int, int]] = frozenset()

    def takes(self, letter: Letter) -> bool:
        place = (int(letter.partition.partition), letter.record.offset)
        return (
            (self.group is None or letter.trail.group == self.group)
            and (self.origin_topic is None or letter.trail.origin.topic == self.origin_topic)
            and (self.error is None or self.error in letter.error_class or self.error in letter.error_message)
            and (self.key is None or letter.record.key == self.key)
            and (self.since_ms is None or letter.failed_ms >= self.since_ms)
            and (self.until_ms is None or letter.failed_ms < self.until_ms)
            and (not self.places or place in self.places)
        )
