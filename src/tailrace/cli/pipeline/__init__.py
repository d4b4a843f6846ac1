"""`tailrace pipeline run|check|compact`: pipelines on Spark, declared in a file."""

from __future__ import annotations

import argparse
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
  tailrace pipeline run orders.toml --once --master spark://host:7077
  tailrace pipeline compact orders.toml

docs/spark/pipelines.md describes the file.
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    _register_run(actions)
    _add_action(actions, "check", "check what a file declares, without Spark and without a broker", "check orders.toml")
    compact = _add_action(
        actions, "compact", "merge the small files of a pipeline's Delta or Iceberg table", "compact orders.toml"
    )
    compact.add_argument(
        "--target-mb", type=_positive, default=128, metavar="N", help="size of the new files (default: 128)"
    )


def _register_run(actions: Actions) -> None:
    parser = _add_action(
        actions, "run", "run what a file declares; Ctrl-C finishes the batch and stops", "run orders.toml --once"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="of Spark (default: SPARK_MASTER, else local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, such as sc://host:15002")
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is done")
    parser.add_argument("--metrics", metavar="FILE", help="append a JSON line for each batch; - is stdout")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="a setting of Spark; repeatable, wins over the file's",
    )
    parser.add_argument(
        "--log-level", default="OFF", metavar="LEVEL", help="of Spark's own log: ERROR, WARN, ... (default: OFF)"
    )


def _add_action(actions: Actions, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("file", metavar="FILE", help="ends in .toml, .yaml or .yml")

    def run(options: argparse.Namespace) -> int:
        action = import_module(f"tailrace.cli.pipeline.{name}")
        exit_code: int = action.run(options)
        return exit_code

    parser.set_defaults(run=run)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number
