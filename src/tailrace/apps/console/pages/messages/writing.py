"""Records written from a page: typed, or one that is there sent again."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.pages.messages.looking import read_one
from tailrace.apps.console.reading.views import PLAIN
from tailrace.apps.console.web import Console, confirmed, done, field, number
from tailrace.client.producer import Producer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition


async def produce(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    form = request.state.form
    key = None if "no_key" in form else form.get("key", "").encode()
    value = None if "no_value" in form else form.get("value", "").replace("\r\n", "\n").encode()
    partition = number(request, "partition")
    headers = tuple(_headers(field(request, "headers")))
    where = "a partition by its key" if partition is None else f"partition {partition}"
    size = "no value: a tombstone" if value is None else f"a value of {len(value)} bytes"
    words = [f"One record with {size} is written to topic {name}, {where}. Whoever reads the topic gets it."]
    page = confirmed(console, visit, request, title=f"Write to {name}", words=words)
    if page is not None:
        return page
    async with Producer(visit.cluster) as producer:
        written = await (await producer.send(name, value, key=key, headers=headers, partition=partition))
    said = f"Written to partition {written.partition.partition} at offset {written.offset}."
    return done(f"/topics/{quote(name, safe='')}/messages", said)


async def send_again(console: Console, visit: Visit, request: Request) -> Response:
    """The very bytes that were written, headers too: to the same topic or another one."""
    name, partition, offset = (request.path_params[each] for each in ("name", "partition", "offset"))
    to, to_partition = field(request, "to") or name, number(request, "partition")
    where = "a partition by its key" if to_partition is None else f"partition {to_partition}"
    words = [
        f"The record at offset {offset} of partition {partition} of {name} is written to topic {to}, {where}.",
        "Its key, value and headers stay as they are. Whoever reads the topic gets it.",
    ]
    page = confirmed(console, visit, request, title=f"Send {name} {partition}:{offset} again", words=words)
    if page is not None:
        return page
    place = TopicPartition(name, PartitionIndex(partition))
    seen = await read_one(console, visit, place, offset, await console.view(visit, name))
    found = await read_one(console, visit, place, offset, PLAIN)
    if seen is None or found is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"offset {offset} of {name}-{partition} is not there any more")
    if seen.notes.is_masked:
        # In another topic it might be masked no more.
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "something of this record is masked for you")
    record = found.record
    async with Producer(visit.cluster) as producer:
        sent = await producer.send(to, record.value, key=record.key, headers=record.headers, partition=to_partition)
        written = await sent
    said = f"Written to partition {written.partition.partition} at offset {written.offset}."
    return done(f"/topics/{quote(to, safe='')}/messages", said)


def _headers(text: str) -> list[tuple[str, bytes]]:
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the header {line!r} is not name=value")
        found.append((name.strip(), value.strip().encode()))
    return found
