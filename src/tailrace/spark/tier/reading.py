"""What a task does with a split of the tier: reads its pieces from the bucket, and decodes them as fetched batches.

An object that is gone meanwhile has been removed by retention, or since another copy serves its offsets. Then brokers
are asked for the rest of the split; without brokers the newest manifest is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from tailrace.client.ranges import FetchedBatches
from tailrace.model.ports import NoObjectError, StoreRefusalError
from tailrace.real.objects.bucket import OpenBucket
from tailrace.spark.arrow.decode import Columns, Decoder
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.loss import LossReport
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.tier.planning import TierSplit
from tailrace.spark.tier.views import TierView, make_view, open_store
from tailrace.tier.format.layout import AbortedEntry
from tailrace.tier.metadata.coverage import Piece
from tailrace.tier.reading.segments import Block, SegmentBlocks

if TYPE_CHECKING:
    import pyarrow as pa


class TierReading:
    def __init__(self, split: TierSplit, options: ReadOptions, columns: tuple[str, ...]) -> None:
        assert options.tier is not None, "the split was planned with a tier"
        self.position = split.wanted.start  # All rows before it were given.
        self._split = split
        self._options = options
        self._columns = columns
        self._tier = options.tier

    def read(self, blocking: BlockingCluster) -> Generator[pa.RecordBatch, None, OffsetRange | None]:
        """Returns what brokers have to be asked for, if anything. Raises StoreError, StorageError, KafkaError or
        DataLossError."""
        opened = blocking.run(open_store(self._tier))
        try:
            partition, _, end = self._split.wanted
            pieces: Iterator[Piece] = iter(self._split.pieces)
            while self.position < end:
                piece = next(pieces)
                try:
                    yield from self._read_piece(piece, opened, blocking)
                except NoObjectError as error:
                    if not self._tier.is_alone:
                        return OffsetRange(partition, self.position, end)
                    pieces = iter(self._replace(piece, error, opened, blocking))
            return None
        finally:
            opened.close()

    def _read_piece(self, piece: Piece, opened: OpenBucket, blocking: BlockingCluster) -> Generator[pa.RecordBatch]:
        split = self._split
        start, end = max(piece.start_offset, self.position), min(piece.end_offset, split.wanted.end)
        decompressed_bytes_max = self._options.kafka.consumer.decompressed_bytes_max
        decoder = Decoder(
            split.wanted.partition, start, end, Columns(self._columns), decompressed_bytes_max=decompressed_bytes_max
        )
        footer = blocking.run(opened.segments.footer(split.owner, piece.segment))
        blocks = SegmentBlocks(opened.segments, footer, start, end)
        try:
            while (block := blocking.run(blocks.next())) is not None:
                yield from decoder.decode(self._as_fetched(block, piece))
                self.position = block.next_offset
        finally:
            blocking.run(blocks.close())
        self.position = end

    def _as_fetched(self, block: Block, piece: Piece) -> FetchedBatches:
        """As if a broker had answered so."""
        aborted: list[AbortedEntry] = []
        if block.headers:
            first, last = block.headers[0][1].base_offset, block.headers[-1][1].last_offset
            aborted = [each for each in self._split.aborted if each.first_offset <= last and each.last_offset >= first]
        end_offset = piece.segment.end_offset
        return FetchedBatches(
            position=self.position,
            next_offset=block.next_offset,
            records=block.records,
            aborted=tuple((each.first_offset, each.producer_id) for each in aborted),
            log_start_offset=piece.start_offset,
            high_watermark=end_offset,
            last_stable_offset=end_offset,
        )

    def _replace(
        self, missing: Piece, error: NoObjectError, opened: OpenBucket, blocking: BlockingCluster
    ) -> list[Piece]:
        """The pieces of the rest, as the tier has it now."""
        partition, _, end = self._split.wanted
        view = blocking.run(_view_now(opened, self._split, self._options))
        if view is not None and any(each.segment.segment_id == missing.segment.segment_id for each in view.pieces):
            raise StoreRefusalError(
                f"{error}; the newest manifest names it, so records of {partition} are lost. See: tailrace tier verify"
            )
        log_start_offset = view.log_start_offset if view is not None else end
        if log_start_offset > self.position:
            start, self.position = self.position, min(log_start_offset, end)
            LossReport(fail_on_data_loss=self._options.fail_on_data_loss).add(
                f"offsets {start} to {self.position - 1} of {partition} are lost: retention took them"
            )
        found = [] if view is None else list(view.coverage.pieces_from(self.position))
        if self.position < end and (not found or found[0].start_offset > self.position or found[-1].end_offset < end):
            raise StoreRefusalError(f"{error}; no other copy has offsets {self.position} to {end - 1} of {partition}")
        return found


async def _view_now(opened: OpenBucket, split: TierSplit, options: ReadOptions) -> TierView | None:
    """None if the topic is gone."""
    for manifest in await opened.bucket.manifests(split.wanted.partition.topic):
        if manifest.owner == split.owner:
            return await make_view(opened, manifest, options.kafka.isolation)
    return None
