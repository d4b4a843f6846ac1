"""Where a reader stands, as the id of an event: `0:15,2:7` is offset 15 of partition 0 and 7 of partition 2, next."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.apps.gateway.errors import bad_request

_NUMBER_DIGITS_MAX = 19


def write_places(places: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))


def read_places(text: str) -> dict[int, int]:
    """Raises GatewayError."""
    places: dict[int, int] = {}
    for word in filter(None, text.strip().split(",")):
        partition, colon, offset = word.partition(":")
        if not colon or not all(
            number.isascii() and number.isdigit() and len(number) <= _NUMBER_DIGITS_MAX
            for number in (partition, offset)
        ):
            raise bad_request(f"{word!r} is no place: a partition and the next offset, such as 0:15")
        places[int(partition)] = int(offset)
    return places
