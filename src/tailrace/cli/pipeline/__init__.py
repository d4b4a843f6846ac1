"""`tailrace pipeline`: pipelines on Spark, declared in files; run, watched, and stopped."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from tailrace.cli import Actions
from tailrace.cli.session import key_and_value

DESCRIPTION = (
    "Run pipelines on Spark that are declared in a TOML or YAML file: topics to tables and topics, "
    "exactly once; backfills and audits."
)
EXAMPLES = """\
examples:
  tailrace pipeline check orders.toml
  tailrace pipeline run orders.toml
  tailrace pipeline run orders.toml payments.toml --port 9500
  tailrace pipeline list
  tailrace pipeline stop orders
  tailrace pipeline run orders.toml --once --master spark://host:7077
  tailrace pipeline compact orders.toml

exit codes of run: 0 it has ended or was stopped, 1 it failed for a reason that stays (or an audit found differences),
2 the command line is wrong, 75 it failed for a reason that passes, and was tried as often as --retries says

docs/spark/pipelines.md describes the file.
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_run(actions)
    _register_watching(actions)
    check = _add_action(
        actions, "check", "check what a file declares: its schemas, topics, SQL, and columns", "check orders.toml"
    )
    check.add_argument("--offline", action="store_true", help="ask no broker, and start no Spark to parse SQL")
    _register_plan(actions)
    _register_replay(actions)
    compact = _add_action(
        actions, "compact", "merge the small files of a pipeline's Delta or Iceberg table", "compact orders.toml"
    )
    compact.add_argument(
        "--target-mb", type=_positive, default=128, metavar="N", help="size of the new files (default: 128)"
    )


def _register_run(actions: Actions) -> None:
    parser = actions.add(
        "run", "run what files declare; Ctrl-C finishes the batch and stops", "run orders.toml payments.toml --once"
    )
    parser.add_argument("file", nargs="+", metavar="FILE", help="ends in .toml, .yaml or .yml; all in one session")
    parser.set_defaults(run=_imported("run"))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="of Spark (default: SPARK_MASTER, else local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, such as sc://host:15002")
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is done")
    parser.add_argument("--metrics", metavar="FILE", help="append a JSON line for each batch; - is stdout")
    _add_conf(parser)
    parser.add_argument(
        "--retries",
        type=_natural,
        default=10,
        metavar="N",
        help="how often in a row to try again after a failure that passes, such as a broker that is away, after pauses "
        "of 1 s to 1 min (default: 10); a batch that is done ends the row",
    )
    parser.add_argument(
        "--port", type=_natural, metavar="N", help="tell metrics and health there by HTTP; 0 for a free one, told"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of --port (default: 127.0.0.1)")
    parser.add_argument(
        "--log-level", default="OFF", metavar="LEVEL", help="of Spark's own log: ERROR, WARN, ... (default: OFF)"
    )


def _register_plan(actions: Actions) -> None:
    plan = _add_action(
        actions,
        "plan",
        "say what a backfill or a history has before it: records, bytes, time, cost",
        "plan orders.toml",
    )
    plan.add_argument("--rate", type=_positive, metavar="N", help="records a second that it will take, as you measured")
    plan.add_argument("--cores", type=_positive, default=1, metavar="N", help="that it will keep busy (default: 1)")
    plan.add_argument("--core-hour", type=float, metavar="PRICE", help="of one core for an hour")
    plan.add_argument("--gigabyte", type=float, metavar="PRICE", help="of one GB read from the store")
    plan.add_argument("--requests", type=float, metavar="PRICE", help="of 1,000 requests to the store")
    plan.add_argument("--json", action="store_true", help="print JSON")


def _register_replay(actions: Actions) -> None:
    replay = _add_action(
        actions,
        "replay",
        "take dead letters once more, after what was wrong was mended",
        "replay orders.toml --dead-letters",
    )
    replay.add_argument("--dead-letters", action="store_true", required=True, help="those of the pipeline's sources")
    replay.add_argument(
        "--into-source", action="store_true", help="write the records to their topic once more, not into the sink"
    )
    replay.add_argument(
        "--doubtful", action="store_true", help="also those of which nobody knows whether the sink has them"
    )
    replay.add_argument("--master", metavar="URL", help="of Spark (default: SPARK_MASTER, else local[*])")
    _add_conf(replay)


def _add_conf(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="a setting of Spark; repeatable, wins over the file's",
    )


def _register_watching(actions: Actions) -> None:
    listed = actions.add("list", "list the pipelines that run or ran on this machine", "list")
    listed.set_defaults(run=_imported("listing", "run_list"))
    status = _add_named(actions, "status", "say how a pipeline does, by its run and by its checkpoint", "status orders")
    status.set_defaults(run=_imported("listing", "run_status"))
    lag = _add_named(
        actions, "lag", "say how far behind a pipeline is, partition by partition; it need not run", "lag orders.toml"
    )
    lag.set_defaults(run=_imported("lag"))
    for parser in (listed, status, lag):
        parser.add_argument("--json", action="store_true", help="print JSON")
    stop = _add_named(actions, "stop", "let a pipeline finish its batch and stop; waits for it", "stop orders")
    stop.add_argument(
        "--timeout", type=_positive, default=300, metavar="SECONDS", help="how long to wait (default: 300)"
    )
    stop.set_defaults(run=_imported("stop"))


def _add_named(actions: Actions, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("pipeline", metavar="NAME|FILE", help="its name, or the file that declares it")
    return parser


def _imported(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        found = getattr(import_module(f"tailrace.cli.pipeline.{module}"), function)
        exit_code: int = found(options)
        return exit_code

    return run


def _add_action(actions: Actions, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("file", metavar="FILE", help="ends in .toml, .yaml or .yml")
    parser.set_defaults(run=_imported(name))
    return parser


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number
