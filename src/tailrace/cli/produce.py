"""`tailrace produce`: the lines of stdin or a file as records of a topic."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.cli import CommandError
from tailrace.cli.output import Progress, is_terminal, note, print_json
from tailrace.cli.records import ENCODINGS, ParsedRecord, decode_text, parse_record_json, unescape
from tailrace.cli.session import add_client_options, failure_text, positive_seconds, run_client
from tailrace.cli.values.framed import add_encoding_options, value_encoder
from tailrace.client.metadata import Cluster
from tailrace.client.producer import ACKS_ALL, Delivered, Producer, ProducerOptions
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import KafkaError
from tailrace.wire.compression import Compression

DESCRIPTION = "Write the lines of stdin or a file as records of a topic."
EXAMPLES = """\
examples:
  echo 'hello' | tailrace produce orders
  tailrace produce orders --file lines.txt --compression zstd
  tailrace produce orders --key-separator :                     lines such as  key:value
  tailrace produce orders --header source=shell --key fixed
  tailrace produce orders --file lines.txt --transactional-id loader      all of it, or nothing
  tailrace consume orders -e --json | tailrace produce copy --input json
  echo '{"id": 1}' | tailrace produce orders --schema-registry http://127.0.0.1:8081 --value-schema order.avsc
"""

_CHUNK_BYTES = 256 * 1024
# A line without an end must not fill the memory.
_LINE_BYTES_MAX = 64 * 1024 * 1024
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_client_options(parser)
    parser.add_argument("--file", "-f", metavar="FILE", help="read from here (default: stdin)")
    parser.add_argument("--input", choices=("lines", "json"), default="lines", help="what a line is (default: a value)")
    parser.add_argument(
        "--delimiter", type=_unescaped, default="\\n", metavar="TEXT", help="what ends a line (default: \\n)"
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--key-separator", "-K", type=_unescaped, metavar="TEXT", help="what stands between key and value in a line"
    )
    keys.add_argument("--key", "-k", metavar="TEXT", help="the key of every record")
    parser.add_argument(
        "--header", "-H", type=_header, action="append", default=[], metavar="NAME=VALUE", help="repeatable"
    )
    parser.add_argument("--partition", "-p", type=int, metavar="N", help="default: by the key's hash, as Kafka does")
    parser.add_argument("--key-encoding", choices=ENCODINGS, default="utf-8", help="how keys are written")
    parser.add_argument("--value-encoding", choices=ENCODINGS, default="utf-8", help="how values are written")
    parser.add_argument("--empty-as-null", "-Z", action="store_true", help="an empty key or value is null")
    parser.add_argument("--compression", choices=[codec.name.lower() for codec in Compression], default="none")
    parser.add_argument("--acks", choices=_ACKS, default="all", help="who has it before it counts (default: all)")
    add_encoding_options(parser)
    _add_transaction_options(parser)
    parser.add_argument("--json", action="store_true", help="print where each record went, one JSON object a line")
    parser.set_defaults(run=run, refuse=parser.error)


def _add_transaction_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--transactional-id", metavar="ID", help="write in one transaction; another producer with this id is fenced"
    )
    parser.add_argument(
        "--transaction-records", type=int, metavar="N", help="commit after every N records (default: at the end)"
    )
    parser.add_argument(
        "--transaction-timeout",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="the brokers abort a transaction that takes longer (default: 60)",
    )


def run(options: argparse.Namespace) -> int:
    if options.transactional_id is not None and _ACKS[options.acks] != ACKS_ALL:
        options.refuse("--transactional-id: a transaction needs --acks all")
    if options.transaction_records is not None and (
        options.transactional_id is None or options.transaction_records < 1
    ):
        options.refuse("--transaction-records: expected a number above 0, beside --transactional-id")
    if options.input == "json" and (options.key is not None or options.key_separator is not None):
        options.refuse("--input json: the key is in the line; leave --key and --key-separator off")
    reader = LineReader(options)
    source = _open(options.file)
    try:
        return run_client(options, lambda cluster: _produce(cluster, options, reader, source))
    finally:
        if options.file:
            os.close(source)


def _open(path: str | None) -> int:
    if path is None:
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


class LineReader:
    """Turns lines into records."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._encode = value_encoder(options)
        self._key = None if options.key is None else self._decode("--key", options.key_encoding, options.key.encode())

    def parse(self, line: bytes, number: int) -> ParsedRecord:
        """With its value encoded, if there is a schema."""
        where = f"line {number}"
        record = self._parse(line, where)
        if self._encode is None or record.value is None:
            return record
        return record._replace(value=self._encode(record.value, where))

    def _parse(self, line: bytes, where: str) -> ParsedRecord:
        if self._options.input == "json":
            try:
                record = parse_record_json(line)
            except ValueError as error:
                raise CommandError(f"{where} is not a record in JSON: {error}") from None
            return record._replace(headers=[*record.headers, *self._options.header])
        key, value = self._key, line
        if self._options.key_separator is not None:
            text, found, value = line.partition(self._options.key_separator)
            if not found:
                raise CommandError(f"{where} has no key separator: expected {self._options.key_separator!r} in it")
            key = self._null(self._decode(where, self._options.key_encoding, text))
        content = self._null(self._decode(where, self._options.value_encoding, value))
        return ParsedRecord(key, content, self._options.header, None)

    def _null(self, content: bytes) -> bytes | None:
        return None if self._options.empty_as_null and not content else content

    def _decode(self, where: str, encoding: str, text: bytes) -> bytes:
        try:
            return decode_text(encoding, text)
        except ValueError as error:
            raise CommandError(f"{where} is not {encoding}: {error}") from None


def _unescaped(text: str) -> bytes:
    try:
        found = unescape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError("it must not be empty")
    return found


def _header(word: str) -> tuple[str, bytes | None]:
    name, equals, value = word.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VALUE, or NAME for a null value")
    return name, value.encode() if equals else None


class _Tally:
    """Counts what was acknowledged and keeps the first failure."""

    def __init__(self, progress: Progress, *, prints_json: bool) -> None:
        self.failure: KafkaError | None = None
        self._progress = progress
        self._prints_json = prints_json

    def watch(self, delivered: asyncio.Future[Delivered], size_bytes: int) -> None:
        delivered.add_done_callback(lambda done: self._settle(done, size_bytes))

    def _settle(self, done: asyncio.Future[Delivered], size_bytes: int) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            assert isinstance(error, KafkaError)
            self.failure = self.failure or error
            return
        self._progress.add(1, size_bytes)
        if self._prints_json:
            where, offset, timestamp = done.result()
            print_json({"topic": where.topic, "partition": where.partition, "offset": offset, "timestamp": timestamp})


async def _produce(cluster: Cluster, options: argparse.Namespace, reader: LineReader, source: int) -> int:
    timeout_ms = int(options.timeout * 1000)
    settings = ProducerOptions(
        acks=_ACKS[options.acks],
        compression=Compression[options.compression.upper()],
        request_timeout_ms=timeout_ms,
        delivery_timeout_ms=timeout_ms,
        create_topics=True,
    )
    progress = Progress("produced", is_shown=not os.isatty(source))
    tally = _Tally(progress, prints_json=options.json)
    try:
        async with _producer(cluster, options, settings) as producer:
            number = 0
            async for line in read_lines(source, options.delimiter):
                number += 1
                record = reader.parse(line, number)
                delivered = await producer.send(
                    options.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=options.partition,
                    timestamp=record.timestamp,
                )
                tally.watch(delivered, len(line))
                if tally.failure is not None:
                    break
                if (
                    isinstance(producer, TransactionalProducer)
                    and number % (options.transaction_records or sys.maxsize) == 0
                ):
                    await producer.commit()
                    producer.begin()
    finally:
        progress.end()
    # The callbacks of the last records run in the loop's next turn.
    await asyncio.sleep(0)
    if tally.failure is not None:
        raise CommandError(f"{failure_text(tally.failure)}; {progress.records:,} records were acknowledged before")
    if not options.json and is_terminal(sys.stderr):
        note(progress.summary())
    return 0


@asynccontextmanager
async def _producer(
    cluster: Cluster, options: argparse.Namespace, settings: ProducerOptions
) -> AsyncIterator[Producer | TransactionalProducer]:
    """What it has sent is acknowledged at the end, and committed, if it writes in a transaction. Whatever ends it
    before, also a line that is no record, aborts the transaction."""
    if options.transactional_id is None:
        async with Producer(cluster, settings) as producer:
            yield producer
        return
    transaction = TransactionOptions(
        options.transactional_id,
        timeout_ms=int(options.transaction_timeout * 1000),
        retry_timeout_ms=int(options.timeout * 1000),
        producing=settings,
    )
    async with TransactionalProducer(cluster, transaction) as transactional:
        transactional.begin()
        yield transactional
        await transactional.commit()


async def read_lines(source: int, delimiter: bytes) -> AsyncIterator[bytes]:
    """The lines of a file descriptor without their delimiter; a last line without one counts too."""
    rest = b""
    async for chunk in _chunks(source):
        *lines, rest = (rest + chunk).split(delimiter)
        for line in lines:
            yield line
        if len(rest) > _LINE_BYTES_MAX:
            raise CommandError(f"a line is longer than {_LINE_BYTES_MAX} bytes: is the --delimiter right?")
    if rest:
        yield rest


async def _chunks(source: int) -> AsyncIterator[bytes]:
    # A terminal or a pipe may let us wait: then records that linger must go out all the same.
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()

    def on_readable() -> None:
        # Once only: if it were called again before the read below, that read would be followed by one that blocks.
        loop.remove_reader(source)
        is_readable.set()

    try:
        while True:
            try:
                loop.add_reader(source, on_readable)
                await is_readable.wait()
                is_readable.clear()
            except PermissionError:
                pass  # A file on disk: always readable, so the kernel offers no waiting for it.
            chunk = os.read(source, _CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(source)
