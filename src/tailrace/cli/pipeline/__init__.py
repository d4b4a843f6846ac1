"""`tailrace pipeline run|check|compact`: pipelines on Spark, declared in a file."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.cli.session import key_and_value

if TYPE_CHECKING:
    from tailrace.cli import Subparsers

EXAMPLES = """\
examples:
  tailrace pipeline check orders.toml
  tailrace pipeline run orders.toml
  tailrace pipeline run orders.toml --once --master spark://host:7077
  tailrace pipeline compact orders.toml

docs/spark/pipelines.md describes the file.
"""


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pipeline",
        help="run pipelines on Spark: topics to tables and topics, backfills, audits",
        description="Run pipelines on Spark that are declared in a TOML or YAML file: topics to tables and topics, "
        "exactly once; backfills and audits.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _register_run(actions)
    _add_action(actions, "check", "check what a file declares, without Spark and without a broker", "check orders.toml")
    compact = _add_action(
        actions, "compact", "merge the small files of a pipeline's Delta or Iceberg table", "compact orders.toml"
    )
    compact.add_argument(
        "--target-mb", type=_positive, default=128, metavar="N", help="size of the new files (default: 128)"
    )


def _register_run(actions: Subparsers) -> None:
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


def _add_action(actions: Subparsers, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=f"example:\n  tailrace pipeline {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
