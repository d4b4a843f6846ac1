"""What a running query says of itself, batch by batch: rows, lag, times.

Pure: `batch_progress` reads the JSON that Spark gives its listeners. `Lag` is how many records the sources have that
no batch has taken yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple


class BatchProgress(NamedTuple):
    pipeline: str
    query_id: str
    batch: int
    timestamp: str  # when it began
    rows: int
    rows_per_second: float
    duration_ms: int
    lag: int | None  # None if a source did not say how far its topic goes
    watermark: str | None
    state_rows: int  # what aggregations, joins and deduplication remember
    late_rows: int  # came later than the watermark allows, and were left out
    # Up to which offsets the batch has taken the sources, {"topic": {"0": 23}}; empty where they do not say.
    offsets: Mapping[str, Mapping[str, int]] = MappingProxyType({})

    def as_line(self) -> str:
        """For a file of metrics: without the offsets, of which there may be thousands."""
        table = self._asdict()
        del table["offsets"]
        return json.dumps(table)


class Sign(Enum):
    """A query lives, though no batch tells of it."""

    STARTED = "started"
    IDLE = "idle"  # It looked, and there was nothing to do.


class RunSummary(NamedTuple):
    """What a run has done since it was started."""

    batches: int = 0
    rows: int = 0
    duration_ms: int = 0
    lag: int | None = None
    late_rows: int = 0

    def with_batch(self, progress: BatchProgress) -> RunSummary:
        return RunSummary(
            self.batches + (progress.rows > 0),
            self.rows + progress.rows,
            self.duration_ms + progress.duration_ms,
            progress.lag,
            self.late_rows + progress.late_rows,
        )


def batch_progress(pipeline: str, text: str) -> BatchProgress:
    """From the JSON of a StreamingQueryProgress."""
    progress: dict[str, Any] = json.loads(text)
    states = progress.get("stateOperators") or []
    return BatchProgress(
        pipeline=pipeline,
        query_id=progress["id"],
        batch=progress["batchId"],
        timestamp=progress["timestamp"],
        rows=progress.get("numInputRows") or 0,
        rows_per_second=round(_number(progress.get("processedRowsPerSecond")), 1),
        duration_ms=(progress.get("durationMs") or {}).get("triggerExecution", 0),
        lag=_lag(progress["sources"]),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        state_rows=sum(state.get("numRowsTotal", 0) for state in states),
        late_rows=sum(state.get("numRowsDroppedByWatermark", 0) for state in states),
        offsets=_ends(progress["sources"]),
    )


def _ends(sources: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Where two sources read one partition, it is done up to the earlier offset."""
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        for topic, offsets in (_offsets(source.get("endOffset")) or {}).items():
            if isinstance(offsets, dict):
                known = found.setdefault(topic, {})
                for partition, offset in offsets.items():
                    known[partition] = min(known.get(partition, offset), offset)
    return found


def _lag(sources: list[dict[str, Any]]) -> int | None:
    lags = [_source_lag(_offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None


def _source_lag(latest: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> int | None:
    if latest is None or end is None:
        return None
    return sum(
        max(0, int(offset) - int(end.get(topic, {}).get(partition, 0)))
        for topic, offsets in latest.items()
        for partition, offset in offsets.items()
    )


def _offsets(value: Any) -> Mapping[str, Any] | None:
    """Offsets are JSON, which Spark hands over as it is or as a text, depending on its version."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _number(value: Any) -> float:
    """Rates of an instant are no numbers in JSON: Spark leaves them out, or writes them as a text."""
    return float(value) if isinstance(value, int | float) else 0.0
