"""How the keys and values of records become columns, and what becomes of a record that cannot be read so.

`onDecodeError` is `fail` (the default: the query stops and names the record), `null` (the column is null, the rest of
the row stays) or `deadletter` (the record goes to `deadLetterTopic` and gives no row). Keys and values that are null
are null in every format, and never an error: that is what tombstones look like. A column that is not asked for is not
decoded, so nothing of it can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.options.errors import OptionError
from tailrace.spark.values.dead_letters import Attempt, DeadLetter, DeadLetterWriter, check_topic_exists
from tailrace.spark.values.decoded import ColumnDecoder, Format
from tailrace.spark.values.errors import DecodeError
from tailrace.spark.values.parsing import choices_text, parse_format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from tailrace.spark.blocking import BlockingCluster
    from tailrace.spark.options.kafka import KafkaSettings
    from tailrace.spark.options.read import Subscription

KEY = "key"
VALUE = "value"
_ORIGIN = ("topic", "partition", "offset")
# A local property of every job that a streaming query runs.
_BATCH_ID = "streaming.sql.batchId"


class OnDecodeError(StrEnum):
    FAIL = "fail"
    NULL = "null"
    DEADLETTER = "deadletter"


# What of a record has to be read, whatever the query asks for.
_COLUMNS_NEEDED = {
    OnDecodeError.FAIL: _ORIGIN,
    OnDecodeError.NULL: (),
    OnDecodeError.DEADLETTER: (KEY, VALUE, *_ORIGIN, "timestamp", "headers"),
}


@dataclass(frozen=True)
class RecordFormat:
    """Crosses to the executors by pickle."""

    key: Format | None
    value: Format | None
    on_error: OnDecodeError
    dead_letter_topic: str | None
    # The run of a pipeline, which its dead letters name.
    dead_letter_run: str | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> RecordFormat | None:
        """None if records are to stay bytes. Raises OptionError."""
        key, value = parse_format(options, KEY), parse_format(options, VALUE)
        on_error = _parse_on_error(options)
        topic = options.get("deadlettertopic")
        if key is None and value is None:
            given = [name for name in ("onDecodeError", "deadLetterTopic") if name.lower() in options]
            if given:
                raise OptionError(f"option {given[0]} needs value.format or key.format: bytes are not decoded")
            return None
        if on_error is OnDecodeError.DEADLETTER and not topic:
            raise OptionError("option onDecodeError is deadletter: name the topic for dead letters in deadLetterTopic")
        if topic is not None and on_error is not OnDecodeError.DEADLETTER:
            raise OptionError(
                f"option deadLetterTopic is {topic!r}, but onDecodeError is {on_error}: nothing would be written "
                "there; set onDecodeError to deadletter, or leave deadLetterTopic out"
            )
        return RecordFormat(key, value, on_error, topic, options.get("deadletterrun"))

    def spark_type(self, column: str) -> DataType | None:
        """None if the column stays what it is."""
        found = self._formats.get(column)
        return None if found is None else found.spark_type

    @property
    def _formats(self) -> dict[str, Format]:
        return {name: found for name, found in ((KEY, self.key), (VALUE, self.value)) if found is not None}

    def raw_columns(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """What has to be read of each record so that `decode` can make the wanted columns: those first, then more."""
        if not any(column in wanted for column in self._formats):
            return tuple(wanted)
        return tuple(dict.fromkeys((*wanted, *_COLUMNS_NEEDED[self.on_error])))

    def check_subscription(self, subscription: Subscription) -> None:
        """A dead letter that is read again is bad again, and so on for ever. Whether the topic is there already does
        not matter: a broker may create it when it is written to. Raises OptionError."""
        if self.dead_letter_topic is not None and subscription.includes(self.dead_letter_topic):
            raise OptionError(
                f"option deadLetterTopic is {self.dead_letter_topic!r}, which is among the topics that are read, so "
                "that dead letters would be read and written again for ever: name another topic, or a narrower "
                "subscription"
            )

    def check_dead_letter_topic(self, blocking: BlockingCluster, settings: KafkaSettings) -> None:
        """Raises OptionError if it does not exist."""
        if self.dead_letter_topic is not None and not settings.bootstrap:
            raise OptionError(
                "option deadLetterTopic wants records written to brokers, and none is named: give "
                "kafka.bootstrap.servers too, or another onDecodeError"
            )
        if self.dead_letter_topic is not None:
            check_topic_exists(blocking, self.dead_letter_topic, settings)

    def decode(
        self,
        batches: Iterable[pa.RecordBatch],
        wanted: Sequence[str],
        blocking: BlockingCluster,
        settings: KafkaSettings,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of `raw_columns` in, of the wanted columns out; dead letters are written before their batch is out.
        Raises DecodeError, or KafkaError if dead letters cannot be written."""
        decoders = {name: found.decoder() for name, found in self._formats.items() if name in wanted}
        writer = None
        if self.dead_letter_topic is not None and decoders:
            writer = DeadLetterWriter(blocking, self.dead_letter_topic, settings, _attempt(self.dead_letter_run))
        try:
            for batch in batches:
                decoded = decode_batch(batch, wanted, decoders)
                if decoded.bad and self.on_error is OnDecodeError.FAIL:
                    raise DecodeError(_explain(batch, decoded.bad))
                if decoded.bad and writer is not None:
                    writer.write(_dead_letters(batch, decoded.bad))
                    yield decoded.good_rows()
                else:
                    yield decoded.batch
        finally:
            if writer is not None:
                writer.close()


class BadRow(NamedTuple):
    column: str
    reason: str


class DecodedBatch(NamedTuple):
    batch: pa.RecordBatch
    bad: dict[int, BadRow]

    def good_rows(self) -> pa.RecordBatch:
        import pyarrow as pa

        return self.batch.filter(pa.array([row not in self.bad for row in range(self.batch.num_rows)], pa.bool_()))


def decode_batch(batch: pa.RecordBatch, wanted: Sequence[str], decoders: Mapping[str, ColumnDecoder]) -> DecodedBatch:
    """The wanted columns, those with a decoder decoded. Of a row whose key and value are both bad the key is told."""
    import pyarrow as pa

    columns, fields = [], []
    bad: dict[int, BadRow] = {}
    for name in wanted:
        column, field = batch.column(name), batch.schema.field(name)
        decoder = decoders.get(name)
        if decoder is not None:
            column, reasons = decoder.decode(column)
            field = pa.field(name, column.type)
            bad = {row: BadRow(name, reason) for row, reason in reasons.items()} | bad
        columns.append(column)
        fields.append(field)
    return DecodedBatch(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), bad)


def _explain(batch: pa.RecordBatch, bad: Mapping[int, BadRow]) -> str:
    row = min(bad)
    topic, partition, offset = (batch.column(name)[row].as_py() for name in _ORIGIN)
    more = f" (and of {len(bad) - 1} more records that were fetched with it)" if len(bad) > 1 else ""
    return (
        f"the {bad[row].column} of the record at offset {offset} of {topic}-{partition}{more} cannot be decoded: "
        f"{bad[row].reason}; correct the format or the schema, or set option onDecodeError to null or deadletter"
    )


def _dead_letters(batch: pa.RecordBatch, bad: Mapping[int, BadRow]) -> list[DeadLetter]:
    rows = sorted(bad)
    records = batch.select(_COLUMNS_NEEDED[OnDecodeError.DEADLETTER]).take(rows)
    # As numbers: producers write times that no calendar of Python reaches.
    timestamps_us = records.column("timestamp").cast("int64").to_pylist()
    return [
        DeadLetter(
            record[KEY],
            record[VALUE],
            [(header["key"], header["value"]) for header in record["headers"] or ()],
            TopicPartition(record["topic"], PartitionIndex(record["partition"])),
            record["offset"],
            timestamp_us // 1000,
            *bad[row],
        )
        for row, timestamp_us, record in zip(
            rows, timestamps_us, records.drop_columns(["timestamp"]).to_pylist(), strict=True
        )
    ]


def _attempt(run: str | None) -> Attempt | None:
    """None outside of a pipeline's batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    return None if run is None or batch is None else Attempt(run, int(batch))


def _parse_on_error(options: Mapping[str, str]) -> OnDecodeError:
    text = options.get("ondecodeerror", OnDecodeError.FAIL)
    try:
        return OnDecodeError(text.strip().lower())
    except ValueError:
        raise OptionError(
            f"option onDecodeError is {text!r}: {choices_text(text.strip().lower(), tuple(OnDecodeError))}"
        ) from None
