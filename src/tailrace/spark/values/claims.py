"""Values that lie in an object store (the claim check of `tailrace.kit.claims`): references as they are, or resolved.

A resolved value is checked by its hash. What is missing or damaged fails the task, and names the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.kit.claims.claims import ClaimDamagedError, ClaimMissingError, Claims
from tailrace.kit.claims.reference import CLAIM, Reference, read_reference
from tailrace.spark.options.claims import ClaimOptions
from tailrace.spark.values.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.spark.blocking import BlockingCluster

# Of resolved values in one batch: Arrow's column of bytes ends at 2 GB, and a task holds one batch or two.
_BATCH_BYTES = 64 * 1024 * 1024
_AT_A_TIME = 8


def resolve_claims(
    batches: Iterable[pa.RecordBatch], wanted: Sequence[str], chosen: ClaimOptions, blocking: BlockingCluster
) -> Iterator[pa.RecordBatch]:
    """Batches with the columns of NEEDED in, of the wanted columns out. Raises DecodeError, or StoreError if the store
    is away."""
    claims: Claims | None = None
    try:
        for batch in batches:
            rows = _claimed_rows(batch)
            if not rows:
                yield batch.select(list(wanted))
                continue
            if claims is None:
                claims = blocking.run(_open(chosen))
            yield from _resolved(batch, rows, wanted, claims, blocking)
    finally:
        if claims is not None:
            blocking.run(claims.__aexit__())


async def _open(chosen: ClaimOptions) -> Claims:
    return await Claims(chosen.url, dict(chosen.settings)).__aenter__()


def _claimed_rows(batch: pa.RecordBatch) -> dict[int, Reference]:
    import pyarrow.compute as pc

    headers = batch.column("headers")
    names = headers.flatten().field("key") if len(headers) else None
    if names is None or not pc.any(pc.equal(names, CLAIM)).as_py():
        return {}
    values = batch.column("value")
    found: dict[int, Reference] = {}
    for row, header in enumerate(headers):
        pairs = tuple((each["key"], each["value"]) for each in header.as_py() or ())
        if any(name == CLAIM for name, _ in pairs):
            try:
                reference = read_reference(values[row].as_py(), pairs)
            except ValueError as error:
                raise DecodeError(f"{_place(batch, row)} cannot be resolved: {error}") from None
            assert reference is not None, "its header says that it is a claim"
            found[row] = reference
    return found


def _resolved(
    batch: pa.RecordBatch,
    rows: dict[int, Reference],
    wanted: Sequence[str],
    claims: Claims,
    blocking: BlockingCluster,
) -> Iterator[pa.RecordBatch]:
    """In pieces, by the size of what is resolved."""
    ends, size = [], 0
    for row in range(batch.num_rows):
        coming = rows[row].size_bytes if row in rows else 0
        if size and size + coming > _BATCH_BYTES:
            ends.append(row)
            size = 0
        size += coming
    start = 0
    for end in (*ends, batch.num_rows):
        here = {row - start: reference for row, reference in rows.items() if start <= row < end}
        yield _piece(batch.slice(start, end - start), blocking.run(_fetch_all(claims, here))).select(list(wanted))
        start = end


def _piece(part: pa.RecordBatch, found: dict[int, bytes | Exception]) -> pa.RecordBatch:
    import pyarrow as pa

    values: list[Any] = part.column("value").to_pylist()
    for row, value in found.items():
        if not isinstance(value, bytes):
            raise DecodeError(f"{_place(part, row)} cannot be resolved: {value}") from value
        values[row] = value
    index = part.schema.get_field_index("value")
    field = part.schema.field(index)
    return part.set_column(index, field, pa.array(values, field.type))


async def _fetch_all(claims: Claims, rows: dict[int, Reference]) -> dict[int, bytes | Exception]:
    """What is missing or damaged is told of its row; a store that is away is raised."""
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def fetch(reference: Reference) -> bytes | Exception:
        async with slots:
            try:
                return await claims.fetch(reference)
            except (ClaimMissingError, ClaimDamagedError) as error:
                return error

    async with asyncio.TaskGroup() as group:
        tasks = {row: group.create_task(fetch(reference)) for row, reference in rows.items()}
    return {row: task.result() for row, task in tasks.items()}


def _place(batch: pa.RecordBatch, row: int) -> str:
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"the value of the record at offset {offset} of {topic}-{partition}"
