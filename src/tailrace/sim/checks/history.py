"""What is committed, as was first seen below a high watermark: batch by batch, for each partition and for the metadata.

Every replica is compared with it as its own high watermark rises, from its first offset on in each of its lives. So
committed prefixes agree, an offset is given once, a committed batch never changes or goes, and a (producer id, epoch,
sequence) is committed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.wire.records import BatchHeader, crc_is_valid, iterate_headers


class ViolationError(AssertionError):
    """A promise was broken."""


def demand(is_kept: object, promise: str, **facts: object) -> None:
    if not is_kept:
        raise ViolationError(promise + "".join(f" {name}={fact}" for name, fact in facts.items()))


class Batch(NamedTuple):
    """What is told of a committed batch; the CRC stands for its records."""

    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class History:
    """The committed batches of one partition."""

    def __init__(self, name: str, on_extended: Callable[[BatchHeader, bytes], None] | None = None) -> None:
        """`on_extended` is told of each batch when it is first seen, in their order."""
        self.name = name
        self._on_extended = on_extended
        self.batches: dict[int, Batch] = {}  # by base offset
        self.end_offset = 0
        self._sequences: dict[tuple[int, int, int], int] = {}

    def compare(self, who: str, data: bytes, offset: int, high_watermark: int, *, is_damaged: bool = False) -> int:
        """Looks at the batches of a replica from an offset up to its high watermark; gives the offset after the last of
        them. The first may begin before that offset, the others follow without a gap. Of a disk that `is_damaged` what
        lies behind a bad batch is not judged: how it was, another replica tells."""
        next_offset = -1
        for position, header in iterate_headers(data, allow_partial=True):
            if header.next_offset > high_watermark:
                break
            demand(
                header.base_offset <= offset if next_offset < 0 else header.base_offset == next_offset,
                "nothing is missing between committed batches",
                partition=self.name,
                replica=who,
                expected=max(offset, next_offset),
                found=header.base_offset,
            )
            is_whole = crc_is_valid(data, position, header)
            if is_damaged and not is_whole:
                break
            demand(is_whole, "what is stored has a good CRC", partition=self.name, replica=who)
            if self._compare(who, header) and self._on_extended is not None:
                self._on_extended(header, data[position : position + header.size_bytes])
            next_offset = header.next_offset
        return next_offset

    def _compare(self, who: str, header: BatchHeader) -> bool:
        """Whether it is new."""
        batch = Batch(
            header.next_offset,
            header.leader_epoch,
            header.crc,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        known = self.batches.get(header.base_offset)
        if known is None:
            demand(
                header.base_offset == self.end_offset,
                "committed batches follow on each other",
                partition=self.name,
                replica=who,
                base_offset=header.base_offset,
                committed_end=self.end_offset,
            )
            self._extend(who, header.base_offset, batch)
        else:
            demand(
                known == batch,
                "committed prefixes agree",
                partition=self.name,
                replica=who,
                offset=header.base_offset,
                committed=known,
                found=batch,
            )
        return known is None

    def _extend(self, who: str, base_offset: int, batch: Batch) -> None:
        self.batches[base_offset] = batch
        self.end_offset = batch.next_offset
        if batch.base_sequence >= 0:
            key = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            earlier = self._sequences.setdefault(key, base_offset)
            demand(
                earlier == base_offset,
                "a sequence is committed once",
                partition=self.name,
                replica=who,
                producer_and_sequence=key,
                offsets=(earlier, base_offset),
            )
