"""What an audit compares, and how strictly. These dataclasses are the Python API and what a pipeline file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.reading import TableScan, TopicRange

# Every way in which the two sides can differ, and what it means.
KINDS = {
    "lost": "expected, and not there, or not as often",
    "unexpected": "there, and the expected side knows nothing of it",
    "withdrawn": "there, though its send was refused or its transaction aborted",
    "duplicate": "there more often than expected",
    "changed": "there as often as expected, but what is compared differs",
    "reordered": "behind a record that it preceded, of the same sequence and partition",
    "gap": "offsets without a record: markers of transactions, aborted or compacted records, or a loss",
}
_SAMPLES_MAX = 1_000


@dataclass(frozen=True)
class TopicSide(TopicRange):
    """A topic, or a range of it. Expressions are SQL over the columns of format("tailrace")."""

    # What tells one record from another; both sides must give as many expressions.
    by: tuple[str, ...] = ("key", "value")
    # What must be equal besides, where two records match.
    compare: tuple[str, ...] = ()
    # Records that are equal in these keep their order; without any, order is not looked at.
    order_by: tuple[str, ...] = ("key",)


@dataclass(frozen=True)
class TableSide(TableScan):
    """A table. Expressions are SQL over its columns."""

    by: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    # Columns that say where in a topic a row comes from, if the table has them: they make its order and gaps known.
    partition: str | None = None
    offset: str | None = None
    time: str | None = None  # for the chart

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.by:
            raise DeclarationError('say what tells its rows apart, such as by = ["order_id"]', "by")
        if (self.partition is None) != (self.offset is None):
            raise DeclarationError("partition and offset are given together, or neither", "offset")


@dataclass(frozen=True)
class HistorySide:
    """What clients recorded of their sends (docs/verify.md): JSON lines, a file or a folder that Spark can read. It is
    held against one topic, by values."""

    history: str

    def __str__(self) -> str:
        return f"history {self.history}"


@dataclass(frozen=True)
class Audit:
    """`expected` is what should be there, `actual` what is."""

    expected: TopicSide | TableSide | HistorySide
    actual: TopicSide | TableSide
    name: str = "audit"
    # A record that is expected several times is expected once, as behind a deduplication.
    distinct: bool = False
    # Kinds of differences that are told, and do not make the audit fail.
    allow: tuple[str, ...] = ("gap",)
    # How many of each kind are shown as evidence.
    samples: int = 10
    # Where the report is saved, besides being returned.
    html: str | None = None
    json: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)  # settings of the session

    def __post_init__(self) -> None:
        for kind in self.allow:
            if kind not in KINDS:
                raise DeclarationError(f"there is no difference {kind!r}: they are {', '.join(KINDS)}", "allow")
        if not 0 <= self.samples <= _SAMPLES_MAX:
            raise DeclarationError(f"{self.samples} samples cannot be shown: from 0 to {_SAMPLES_MAX}", "samples")
        expected, actual = self.expected, self.actual
        if isinstance(expected, HistorySide):
            if not isinstance(actual, TopicSide) or "," in actual.topic:
                raise DeclarationError("a history is held against one topic: give actual a topic", "actual")
            return
        for name in ("by", "compare"):
            ours, theirs = getattr(expected, name), getattr(actual, name)
            if len(ours) != len(theirs):
                raise DeclarationError(
                    f"{name} has {len(ours)} expressions for expected and {len(theirs)} for actual: each is compared "
                    "with the one in its place, so give as many",
                    "actual",
                )

    def __str__(self) -> str:
        return f"{self.expected} against {self.actual}"
