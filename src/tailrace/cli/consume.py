"""`tailrace consume`: the records of a topic on stdout, from an offset or a time, to the end or as they come; with
`--group` as a member of a consumer group, from where the group has got.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping

from tailrace.cli import CommandError
from tailrace.cli.output import CYAN, DIM, Progress, coloured, has_colours, is_terminal
from tailrace.cli.records import ENCODINGS, Shape, compile_template, record_json
from tailrace.cli.session import add_client_options, run_client
from tailrace.cli.times import parse_time
from tailrace.cli.values.framed import add_decoding_options, record_decoder
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.records import Record

DESCRIPTION = (
    "Print the records of a topic, from an offset or a time, to the end or as they come; "
    "as a member of a group those that the group has not read yet, at least once."
)
EXAMPLES = """\
examples:
  tailrace consume orders                                  everything, then what comes; Ctrl-C ends
  tailrace consume orders --from end
  tailrace consume orders --from -10 --until-end           the last 10 of each partition
  tailrace consume orders --from-time -5m                  from five minutes ago
  tailrace consume orders --from-time 2026-01-01T00:00:00Z --count 100 --json
  tailrace consume orders --group billing                  what no member of the group has read; shared with the others
  tailrace consume jobs --share-group workers              a queue: records one by one, as many members as you like
  tailrace consume orders --isolation read_committed       without what transactions have aborted, or not decided
  tailrace consume orders -e --format '%p:%o %k = %v\\n' --value-encoding hex
  tailrace consume orders --schema-registry http://127.0.0.1:8081        Avro, Protobuf and JSON Schema as JSON

format: %v value  %k key  %h headers  %t topic  %p partition  %o offset  %T timestamp in ms  %V, %K sizes  %% percent
"""

_POLL_MS = 60_000
# The last offsets before an end may hold markers, or what was aborted: nothing that a poll would return for.
_POLL_MS_UNTIL_END = 200
_NEGATIVE_VALUE = re.compile(r"-\d+(ms|s|m|h|d)?$")

Write = Callable[[str, int, Record], bytes]


def register(parser: argparse.ArgumentParser) -> None:
    # Without this argparse takes the -5m of `--from-time -5m` for an option.
    parser._negative_number_matcher = _NEGATIVE_VALUE
    parser.add_argument("topic", metavar="TOPIC")
    add_client_options(parser)
    parser.add_argument("--partition", "-p", type=int, action="append", metavar="N", help="only this one; repeatable")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from",
        dest="start",
        type=_start,
        default="beginning",
        metavar="WHERE",
        help="beginning (default), end, an offset, or -N: the last N of each partition",
    )
    start.add_argument(
        "--from-time",
        type=parse_time,
        metavar="TIME",
        help="ISO 8601, milliseconds since 1970, or a time ago: -30s, -5m, -2h, -1d",
    )
    parser.add_argument(
        "--group", "-g", metavar="GROUP", help="share the topic with this consumer group, and commit what was printed"
    )
    parser.add_argument(
        "--share-group", metavar="GROUP", help="take records from the topic as a queue, and accept what was printed"
    )
    parser.add_argument(
        "--group-protocol",
        choices=("consumer", "classic"),
        default="consumer",
        help="consumer (default, KIP-848), or classic for older brokers",
    )
    parser.add_argument(
        "--isolation",
        type=_isolation,
        default="read_uncommitted",
        metavar="LEVEL",
        help="read_uncommitted (default), or read_committed: nothing of open and aborted transactions",
    )
    parser.add_argument("--count", "-n", type=_count, metavar="N", help="end after so many records")
    parser.add_argument("--until-end", "-e", action="store_true", help="end at the last record that is there now")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", type=_template, metavar="TEMPLATE", help="how to print a record, see below")
    shape.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--key-encoding", choices=ENCODINGS, default="utf-8", help="how to print keys")
    parser.add_argument("--value-encoding", choices=ENCODINGS, default="utf-8", help="how to print values and headers")
    add_decoding_options(parser)
    parser.add_argument("--null", default="", metavar="TEXT", help="what to print for a null key or value")
    parser.set_defaults(run=run, refuse=parser.error)


def _start(word: str) -> str:
    if word not in ("beginning", "end") and not re.fullmatch(r"-?\d{1,18}", word):
        raise argparse.ArgumentTypeError(f"{word!r} is not beginning, end, an offset, or -N for the last N")
    return word


def _isolation(word: str) -> Isolation:
    try:
        return Isolation[word.replace("-", "_").upper()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{word!r} is not read_uncommitted or read_committed") from None


def _count(word: str) -> int:
    count = int(word)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a number above 0")
    return count


def _template(text: str) -> str:
    try:
        compile_template(text, Shape())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(options: argparse.Namespace) -> int:
    write = _decoding(_writer(options), options)
    if options.share_group is not None:
        from tailrace.cli.group.sharing import consume_in_share_group

        if options.group or options.partition or options.from_time is not None or options.until_end:
            options.refuse(
                "--share-group takes what nobody has; --group, --partition and --until-end do not go with it"
            )
        return run_client(options, lambda cluster: consume_in_share_group(cluster, options, write))
    if options.group is None:
        return run_client(options, lambda cluster: _consume(cluster, options, write))
    from tailrace.cli.consume_group import consume_in_group

    if options.partition or options.from_time is not None or options.start not in ("beginning", "end"):
        options.refuse("--group reads on from what the group has committed; only --from beginning or end can be given")
    return run_client(options, lambda cluster: consume_in_group(cluster, options, write))


def _writer(options: argparse.Namespace) -> Write:
    shape = Shape(ENCODINGS[options.key_encoding], ENCODINGS[options.value_encoding], options.null.encode())
    if options.json:
        return lambda topic, partition, record: record_json(topic, partition, record, shape).encode() + b"\n"
    if options.format is not None:
        return compile_template(options.format, shape)
    if has_colours(sys.stdout):
        return lambda _topic, partition, record: _coloured_line(partition, record, shape)
    return lambda _topic, _partition, record: shape.value_of(record) + b"\n"


def _decoding(write: Write, options: argparse.Namespace) -> Write:
    decode = record_decoder(options)
    return write if decode is None else lambda topic, partition, record: write(topic, partition, decode(record))


def _coloured_line(partition: int, record: Record, shape: Shape) -> bytes:
    where = coloured(b"%d:%d" % (partition, record.offset), DIM)
    key = b"" if record.key is None else coloured(shape.key_of(record), CYAN) + b" "
    return where + b" " + key + shape.value_of(record) + b"\n"


async def _consume(cluster: Cluster, options: argparse.Namespace, write: Write) -> int:
    partitions = await _partitions(cluster, options)
    consumer = Consumer(cluster, ConsumerOptions(isolation=options.isolation))
    positions = await _start_positions(consumer, partitions, options)
    ends = await consumer.offsets_at(partitions, LATEST) if options.until_end else None
    await consumer.assign(positions)
    progress = Progress("consumed", is_shown=not is_terminal(sys.stdout))
    try:
        left = options.count
        poll_ms = _POLL_MS if ends is None else _POLL_MS_UNTIL_END
        while not _is_at_end(consumer, ends) and left != 0:
            for partition, records in (await consumer.poll(poll_ms)).items():
                wanted = wanted_of(records, left, ends[partition] if ends else None)
                left = None if left is None else left - len(wanted)
                lines = b"".join([write(partition.topic, partition.partition, record) for record in wanted])
                sys.stdout.buffer.write(lines)
                progress.add(len(wanted), len(lines))
            sys.stdout.buffer.flush()
    finally:
        progress.end()
        await consumer.close()
    return 0


def wanted_of(records: list[Record], left: int | None, end: int | None) -> list[Record]:
    """Without those that came after the end as it was at the start, and those beyond the count."""
    if end is not None and records[-1].offset >= end:
        records = [record for record in records if record.offset < end]
    return records if left is None else records[:left]


def _is_at_end(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> bool:
    return ends is not None and all(consumer.position(partition).offset >= end for partition, end in ends.items())


async def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    topic = await cluster.topic(options.topic)
    for index in options.partition or ():
        if index not in topic.partitions:
            raise CommandError(f"topic {topic.name} has no partition {index}: it has 0 to {len(topic.partitions) - 1}")
    return [TopicPartition(topic.name, PartitionIndex(index)) for index in options.partition or topic.partitions]


async def _start_positions(
    consumer: Consumer, partitions: list[TopicPartition], options: argparse.Namespace
) -> dict[TopicPartition, int]:
    if options.from_time is not None:
        timestamp = options.from_time.timestamp_ms(consumer.cluster.ports.clock.wall_ms())
        return await consumer.offsets_at(partitions, timestamp)
    if options.start == "end":
        return await consumer.offsets_at(partitions, LATEST)
    starts = await consumer.offsets_at(partitions, EARLIEST)
    if options.start == "beginning":
        return starts
    ends = await consumer.offsets_at(partitions, LATEST)
    if options.start.startswith("-"):
        return {partition: max(starts[partition], ends[partition] + int(options.start)) for partition in partitions}
    offset = int(options.start)
    for partition in partitions:
        if not starts[partition] <= offset <= ends[partition]:
            raise CommandError(
                f"offset {offset} is not in {partition}, which has {starts[partition]} to {ends[partition]}: "
                "give one of these, --from beginning, or --partition"
            )
    return dict.fromkeys(partitions, offset)
