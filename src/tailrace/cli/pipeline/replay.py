"""`tailrace pipeline replay FILE --dead-letters`: what could not be read then, by the file of now; each record once."""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, note
from tailrace.cli.pipeline.check import loaded
from tailrace.real.runs.folder import RunFile, RunningError, runs_folder
from tailrace.spark.pipelines.declaration import Pipeline
from tailrace.spark.pipelines.failures import failure_text


def run(options: argparse.Namespace) -> int:
    from tailrace.spark.pipelines.beside.replay import Replay, Replayed, replay_folder
    from tailrace.spark.session import JavaNotFoundError, session

    pipeline = loaded(options.file)
    if not isinstance(pipeline, Pipeline):
        raise CommandError(f"{options.file} declares no pipeline")
    folder = replay_folder(pipeline, into_source=options.into_source)
    try:
        # Two of them at a time would plan the same records.
        with RunFile(runs_folder(), f"{pipeline.name}.replay", folder).hold():
            spark = session(pipeline.name, master=options.master, settings={**pipeline.spark, **dict(options.conf)})
            spark.sparkContext.setLogLevel("OFF")
            try:
                replay = Replay(spark, pipeline, into_source=options.into_source, takes_doubtful=options.doubtful)
                done: Replayed = replay.run(lambda records: note(f"{count_text(records, 'record')} done"))
            finally:
                spark.stop()
    except RunningError as error:
        raise CommandError(f"a replay of {pipeline.name} runs already, as {error}") from None
    except JavaNotFoundError as error:
        raise CommandError(str(error)) from None
    except Exception as error:
        if (text := failure_text(error)) is None:
            raise
        raise CommandError(f"{options.file}: {text}") from None
    where = "into their topic" if options.into_source else f"into {pipeline.sink}"
    print(f"{count_text(done.records, 'dead letter')} went {where}")
    for count, reason in (
        (done.still_bad, "cannot be read by this file either"),
        (done.waiting, "of a batch that is not committed yet: replay again when it is"),
        (done.in_doubt, "in doubt: their batch was cut off, and nobody knows which attempt counts (--doubtful)"),
    ):
        if count:
            print(f"{count_text(count, 'dead letter')} {reason}")
    return 1 if done.still_bad or done.in_doubt else 0
