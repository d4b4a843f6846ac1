"""`tailrace pipeline lag`: how far behind a pipeline is, by its checkpoint and its brokers, whether or not it runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.pipeline.naming import declared_pipeline, find_pipeline
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.operating.done import CheckpointError, read_done
from tailrace.spark.operating.lag import Lag, LagReader
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.pipelines.declaration import Pipeline
from tailrace.spark.pipelines.failures import failure_text


def run(options: argparse.Namespace) -> int:
    named = find_pipeline(options.pipeline)
    pipeline = declared_pipeline(named)
    if named.run is not None and named.run.checkpoint != pipeline.checkpoint:
        raise CommandError(f"{named.run.name} reads up to a cut: `tailrace pipeline list` says how much is left")
    try:
        done = read_done(pipeline.checkpoint)
        lag = lag_of(pipeline, done.offsets)
    except (CheckpointError, KafkaError, OptionError) as error:
        raise CommandError(failure_text(error) or str(error)) from None
    if lag is None:
        raise CommandError(f"{pipeline.name} begins at the end of its topics, and no batch of it is done yet")
    if options.json:
        print_json(
            {
                "pipeline": pipeline.name,
                "batch": done.batch,
                "lag": lag.records,
                "lag_seconds": lag.seconds,
                "partitions": [
                    {
                        "topic": each.partition.topic,
                        "partition": each.partition.partition,
                        "done": each.done,
                        "end": each.end,
                        "lag": each.records,
                        "lag_seconds": each.seconds,
                    }
                    for each in lag.partitions
                ],
            }
        )
        return 0
    print_rows(
        ("PARTITION", "DONE", "END", "LAG", "SECONDS"),
        [
            (each.partition, each.done, each.end, each.records, None if each.seconds is None else round(each.seconds))
            for each in lag.partitions
        ],
    )
    age = "" if lag.seconds is None else f", the oldest {lag.seconds:,.0f} s old"
    upto = "no batch is done" if done.batch < 0 else f"batch {done.batch} is done"
    note(f"{pipeline.name}: {lag.records:,} records behind{age if lag.records else ''}; {upto}")
    return 0


def lag_of(pipeline: Pipeline, offsets: Mapping[TopicPartition, int]) -> Lag | None:
    """Raises KafkaError and OptionError."""
    settings = parse_kafka_settings({name.lower(): text for name, text in pipeline.kafka_options.items()})
    with BlockingCluster(settings) as blocking:
        return blocking.run(LagReader(blocking.cluster, pipeline).read(offsets))
