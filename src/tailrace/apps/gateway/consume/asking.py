"""What a reader asks for, from the query of its address and the Last-Event-ID of its request."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import HTTPConnection

from tailrace.apps.gateway.consume.places import read_places
from tailrace.apps.gateway.consume.reading import Wanted
from tailrace.apps.gateway.consume.shown import SCHEMA, Shown
from tailrace.apps.gateway.errors import bad_request
from tailrace.apps.opening import RecordOpener
from tailrace.client.consumer import EARLIEST, LATEST, Isolation

_FORMATS = ("json", "string", "binary", SCHEMA)
_STARTS = {"earliest": EARLIEST, "latest": LATEST}
_ISOLATIONS = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}
_GROUP_MAX = 249
QUERY = {
    "group": "read as a member of this group; without it alone, and nothing is committed",
    "from": "earliest, latest (the default) or milliseconds since 1970; in a group, where it has no offset yet",
    "partition": "these alone, such as 0 or 0,2; not in a group",
    "offset": "from this offset on, of the one partition",
    "last-event-id": "go on behind this event, as the header Last-Event-ID, which counts more",
    "isolation": "read_uncommitted (the default) or read_committed",
    "key.format": "string (the default), json, binary (base64) or schema",
    "value.format": "json (the default), string, binary (base64) or schema",
}


def read_wanted(request: HTTPConnection, topic: str, *, acknowledges: bool = False) -> Wanted:
    """Raises GatewayError."""
    query = request.query_params
    group = query.get("group")
    if group is not None and not 0 < len(group) <= _GROUP_MAX:
        raise bad_request(f"group is a name of 1 to {_GROUP_MAX} characters")
    partitions = _partitions(query.get("partition"))
    places = read_places(request.headers.get("last-event-id") or query.get("last-event-id", ""))
    offset = query.get("offset")
    if offset is not None and not places:
        if partitions is None or len(partitions) != 1:
            raise bad_request("offset needs one partition")
        places = {partitions[0]: _number("offset", offset)}
    if group is not None and (partitions is not None or offset is not None):
        raise bad_request("in a group the brokers say which partitions are read: leave partition and offset out")
    isolation = query.get("isolation", "read_uncommitted")
    if isolation not in _ISOLATIONS:
        raise bad_request(f"isolation={isolation} is none of {', '.join(_ISOLATIONS)}")
    return Wanted(
        topic,
        group,
        partitions,
        _start(query.get("from", "latest"), in_group=group is not None),
        places,
        _ISOLATIONS[isolation],
        acknowledges=acknowledges and group is not None,
    )


def read_shown(request: HTTPConnection, find_opener: Callable[[], RecordOpener]) -> Shown:
    """Raises GatewayError."""
    key, value = (
        request.query_params.get(f"{part}.format", default) for part, default in (("key", "string"), ("value", "json"))
    )
    for found in (key, value):
        if found not in _FORMATS:
            raise bad_request(f"the format {found!r} is none of {', '.join(_FORMATS)}")
    return Shown(key, value, find_opener() if SCHEMA in (key, value) else None)


def _start(text: str, *, in_group: bool) -> int:
    if text in _STARTS:
        return _STARTS[text]
    if in_group:
        raise bad_request(f"from={text}: a group begins at earliest or latest")
    return _number("from", text)


def _partitions(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(dict.fromkeys(_number("partition", word) for word in text.split(",")))


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f"{name}={text} is no number")
    return int(text)
