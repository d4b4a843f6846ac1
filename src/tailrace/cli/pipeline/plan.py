"""`tailrace pipeline plan FILE`: what a backfill, or the past of a pipeline, still has before it, and how long it takes
and what it costs. A dry run: a sample is read, and nothing written.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from tailrace.cli import CommandError
from tailrace.cli.output import print_json
from tailrace.cli.pipeline.check import loaded
from tailrace.cli.plan.units import size_text
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.runs.folder import read_runs, run_key, runs_folder
from tailrace.spark.operating.ahead import Ahead, look_ahead
from tailrace.spark.operating.done import CheckpointError, read_cut, read_done
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.declaration import DeclarationError, Pipeline
from tailrace.spark.pipelines.failures import failure_text


class _Wanted(NamedTuple):
    """What there is to plan."""

    name: str
    checkpoint: str
    options: dict[str, str]
    until: dict[TopicPartition, int] | None
    most: int
    pace: int | None


class _Speed(NamedTuple):
    rate: float | None  # Records a second.
    source: str  # Who says so.
    seconds: float | None


def run(options: argparse.Namespace) -> int:
    try:
        wanted = _wanted(options.file)
        try:
            done = read_done(wanted.checkpoint).offsets
        except CheckpointError:
            done = {}
        ahead = look_ahead(wanted.options, done=done, until=wanted.until, most=wanted.most)
    except (DeclarationError, CheckpointError, OptionError, KafkaError) as error:
        raise CommandError(f"{options.file}: {failure_text(error) or error}") from None
    rate, source = _rate(options.rate, wanted)
    speed = _Speed(rate, source, None if rate is None else ahead.records / rate)
    costs = _costs(options, ahead, speed.seconds)
    if options.json:
        print_json(_table(wanted, ahead, speed, costs))
        return 0
    print(f"{wanted.name}: {len(ahead.ranges)} partitions")
    for name, text in _lines(ahead, speed, costs, has_begun=bool(done)):
        print(f"{name:<9}{text}")
    return 0


def _wanted(file: str) -> _Wanted:
    from tailrace.spark.pipelines.backfill import Backfill, batch_records
    from tailrace.spark.pipelines.beside.history import history_checkpoint, history_half, history_name
    from tailrace.spark.pipelines.reading import TopicRange, pin
    from tailrace.spark.pipelines.rows import source_options

    job = loaded(file)
    if isinstance(job, Backfill) and isinstance(job.source, TopicRange):
        pinned = pin(job.source)
        until = {each.partition: each.end for each in pinned.ranges}
        return _Wanted(
            job.name, job.checkpoint or "", pinned.stream_options, until, batch_records(job), job.records_per_second
        )
    if not isinstance(job, Pipeline):
        raise CommandError(f"{file}: only what reads a topic is planned: a backfill of one, or a pipeline")
    if job.history is None:
        (source,) = job.sources.values()
        most = source.batch_records_max or 2**62
        return _Wanted(job.name, job.checkpoint, {**job.kafka_options, **source_options(source)}, None, most, None)
    cut = read_cut(job.checkpoint)
    if cut is None:  # It is made when the pipeline begins: what it would be now.
        (source,) = job.sources.values()
        ranges = pin(TopicRange(source.topic, job.bootstrap, kafka=job.kafka)).ranges
        cut = {}
        for each in ranges:
            cut.setdefault(each.partition.topic, {})[str(each.partition.partition)] = each.end
    half = history_half(job, cut)
    (source,) = half.sources.values()
    until = {
        TopicPartition(topic, PartitionIndex(int(index))): end
        for topic, ends in cut.items()
        for index, end in ends.items()
    }
    return _Wanted(
        history_name(job),
        history_checkpoint(job),
        {"kafka.isolation.level": "read_committed", **half.kafka_options, **source_options(source)},
        until,
        source.batch_records_max or 2**62,
        job.history.records_per_second,
    )


def _rate(given: int | None, wanted: _Wanted) -> tuple[float | None, str]:
    """Records a second, and who says so."""
    rate, source = float(given) if given else None, "--rate"
    if rate is None:
        key = run_key(wanted.name, wanted.checkpoint)
        for each in read_runs(runs_folder()):
            if run_key(each.name, each.checkpoint) == key and each.last_batch_rows and each.last_batch_ms:
                rate, source = each.last_batch_rows * 1000 / each.last_batch_ms, "its last batch"
    if wanted.pace is not None and (rate is None or wanted.pace < rate):
        return float(wanted.pace), "records_per_second"
    return rate, source


def _costs(options: argparse.Namespace, ahead: Ahead, seconds: float | None) -> dict[str, float]:
    """What there is a price for."""
    costs = {}
    if options.core_hour is not None and seconds is not None:
        costs["cores"] = options.cores * seconds / 3600 * options.core_hour
    if options.gigabyte is not None:
        costs["bytes of the store"] = ahead.tier_bytes / 1e9 * options.gigabyte
    if options.requests is not None:
        costs["requests to the store"] = ahead.tier_requests / 1000 * options.requests
    return costs


def _lines(ahead: Ahead, speed: _Speed, costs: dict[str, float], *, has_begun: bool) -> list[tuple[str, str]]:
    each = ""
    if ahead.sampled:
        each = f": {ahead.sampled_bytes / ahead.sampled:,.0f} bytes a record, by a sample of {ahead.sampled:,}"
    known = ahead.broker_bytes
    size = "of unknown size" if known is None else f"{size_text(known)} before compression{each}"
    lines = [
        ("records", f"{ahead.records:,}{' that are left' if has_begun else ''}"),
        ("brokers", f"{ahead.records - ahead.tier_records:,} records, {size}"),
    ]
    if ahead.tier_records:
        stored = f"{size_text(ahead.tier_bytes)}, {ahead.tier_requests:,} requests"
        lines.append(("tier", f"{ahead.tier_records:,} records, {stored}"))
    how = "all at once" if ahead.batches <= 1 else f"of {ahead.batch_records:,} records"
    lines.append(("batches", f"{ahead.batches:,} {how}, tasks in the first: {ahead.first_batch_tasks}"))
    if speed.seconds is None or speed.rate is None:
        lines.append(("time", "unknown: give --rate, or run a batch of it"))
    else:
        lines.append(("time", f"{_span(speed.seconds)} at {speed.rate:,.0f} records a second ({speed.source})"))
    return [*lines, *(("cost", f"{cost:,.2f} for {what}") for what, cost in costs.items())]


def _table(wanted: _Wanted, ahead: Ahead, speed: _Speed, costs: dict[str, float]) -> dict[str, object]:
    return {
        "name": wanted.name,
        "records": ahead.records,
        "batches": ahead.batches,
        "first_batch_tasks": ahead.first_batch_tasks,
        "broker_records": ahead.records - ahead.tier_records,
        "broker_bytes": ahead.broker_bytes,
        "tier_records": ahead.tier_records,
        "tier_bytes": ahead.tier_bytes,
        "tier_requests": ahead.tier_requests,
        "records_per_second": speed.rate,
        "seconds": speed.seconds,
        "costs": costs,
        "ranges": [
            {"topic": each.partition.topic, "partition": each.partition.partition, "start": each.start, "end": each.end}
            for each in ahead.ranges
        ],
    }


def _span(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
