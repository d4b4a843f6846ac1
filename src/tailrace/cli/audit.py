"""`tailrace audit`: compares topics, tables and recorded histories on Spark, and says what differs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.cli import CommandError
from tailrace.cli.output import has_colours, is_terminal, note
from tailrace.cli.session import DEFAULT_BOOTSTRAP, failure_text, key_and_value

if TYPE_CHECKING:
    from tailrace.spark.audit import Audit, HistorySide, Report, TableSide, TopicSide

DESCRIPTION = (
    "Compare what should be there with what is: two topics, a topic and a table, or a topic and a "
    "recorded history. Finds what was lost, doubled, changed, reordered, or never sent."
)
EXAMPLES = """\
examples:
  tailrace audit orders orders-copy
  tailrace audit orders table:/data/orders --by key --actual-by order_id
  tailrace audit history:run.jsonl orders --html report.html
  tailrace audit delta:/data/orders orders --by order_id --actual-by key --allow unexpected
  tailrace audit orders orders-copy --start 2026-01-31T12:00:00Z --actual-bootstrap other:9092

A side is a topic, or one of table:PATH (Parquet), delta:PATH, iceberg:NAME, spark:NAME, history:FILE. What tells
records apart (--by) and what else must be equal (--compare) are SQL expressions over the side's columns.
The exit code is 1 if there are differences. docs/spark/audit.md describes the checks and the report.
"""

_TABLES = {"table": "parquet", "delta": "delta", "iceberg": "iceberg", "spark": "spark"}


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expected", metavar="EXPECTED", help="what should be there")
    parser.add_argument("actual", metavar="ACTUAL", help="what is there")
    for prefix, whose in (("", "EXPECTED"), ("actual-", "ACTUAL, if it differs")):
        group = parser.add_argument_group(f"of {whose}")
        group.add_argument(f"--{prefix}bootstrap", metavar="HOST:PORT,...", help="brokers to ask first")
        group.add_argument(f"--{prefix}by", action="append", metavar="SQL", help="what tells records apart; repeatable")
        group.add_argument(f"--{prefix}compare", action="append", metavar="SQL", help="what must be equal; repeatable")
        group.add_argument(f"--{prefix}where", metavar="SQL", help="only records for which this is true")
        group.add_argument(f"--{prefix}start", metavar="WHERE", help="earliest, a time, or offsets as JSON")
        group.add_argument(f"--{prefix}end", metavar="WHERE", help="latest, a time, or offsets as JSON")
        group.add_argument(f"--{prefix}option", **_REPEATED, help="of the source or the table's reader; repeatable")
        group.add_argument(f"--{prefix}kafka", **_REPEATED, help="a setting of Kafka's clients; repeatable")
        group.add_argument(f"--{prefix}catalog", **_REPEATED, help="a setting of Iceberg's catalog; repeatable")
        group.add_argument(f"--{prefix}partition", metavar="SQL", help="of a table: the partition a row comes from")
        group.add_argument(f"--{prefix}offset", metavar="SQL", help="of a table: the offset a row comes from")
        group.add_argument(f"--{prefix}time", metavar="SQL", help="of a table: its time in the charts")
    parser.add_argument("--order-by", action="append", metavar="SQL", help="what keeps its order (default: key)")
    parser.add_argument("--no-order", action="store_true", help="do not look at the order")
    parser.add_argument("--distinct", action="store_true", help="what is expected several times is expected once")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="KIND", help="no difference; gap always is none"
    )
    parser.add_argument("--fail-on-gaps", action="store_true", help="offsets without a record are a difference")
    parser.add_argument("--samples", type=int, default=10, metavar="N", help="evidence for each kind (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="save it as a page with charts")
    parser.add_argument("--name", default="audit", help="the title of the report")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="of Spark (default: SPARK_MASTER, else local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, such as sc://host:15002")
    parser.set_defaults(run=run)


_REPEATED: dict[str, Any] = {"action": "append", "default": [], "type": key_and_value, "metavar": "KEY=VALUE"}


def run(options: argparse.Namespace) -> int:
    from tailrace.model.errors import KafkaError
    from tailrace.spark.audit import AuditError, run_audit
    from tailrace.spark.options.errors import OptionError
    from tailrace.spark.pipelines.declaration import DeclarationError
    from tailrace.spark.pipelines.failures import failure_text as spark_failure_text
    from tailrace.spark.session import JavaNotFoundError, session

    try:
        audit = _declared(options)
        spark = session(f"tailrace audit {audit.name}", master=options.master, remote=options.remote)
        if options.remote is None:
            spark.sparkContext.setLogLevel("OFF")
        try:
            report = run_audit(audit, spark, on_step=note if is_terminal(sys.stderr) else lambda _: None)
        finally:
            spark.stop()
    except (AuditError, DeclarationError, OptionError, JavaNotFoundError) as error:
        raise CommandError(str(error)) from None
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None
    except Exception as error:
        if (text := spark_failure_text(error)) is None:
            raise
        raise CommandError(text) from None
    _print(report, as_json=options.json)
    return 0 if report.is_clean else 1


def _declared(options: argparse.Namespace) -> Audit:
    from tailrace.spark.audit import Audit, HistorySide

    expected = _side(options, options.expected, "")
    actual = _side(options, options.actual, "actual_")
    if isinstance(actual, HistorySide):
        raise CommandError("a history is what is expected: give it first, and then the topic")
    gaps = () if options.fail_on_gaps else ("gap",)
    return Audit(
        expected,
        actual,
        name=options.name,
        distinct=options.distinct,
        allow=(*gaps, *options.allow),
        samples=options.samples,
        html=_writable(options.html),
    )


def _side(options: argparse.Namespace, text: str, prefix: str) -> TopicSide | TableSide | HistorySide:
    from tailrace.spark.audit import HistorySide, TableSide, TopicSide

    def option(name: str) -> Any:
        """An option of this side. If it is not given, a shared one is taken from the options without a prefix."""
        own = getattr(options, prefix + name)
        return own if own or name not in _SHARED else getattr(options, name)

    kind, colon, name = text.partition(":")
    if colon and kind == "history":
        return HistorySide(name)
    given: dict[str, Any] = {key: tuple(option(key)) for key in ("by", "compare") if option(key)}
    given |= {"where": option("where"), "options": dict(option("option"))}
    if not prefix and (options.no_order or options.order_by):
        given["order_by"] = () if options.no_order else tuple(options.order_by)
    if colon and kind in _TABLES:
        given |= {key: option(key) for key in ("partition", "offset", "time")}
        return TableSide(name, format=_TABLES[kind], catalog=dict(option("catalog")), **given)  # type: ignore[arg-type]
    given |= {key: option(key) for key in ("start", "end") if option(key)}
    topic = name if colon and kind == "topic" else text
    return TopicSide(topic, option("bootstrap") or DEFAULT_BOOTSTRAP, kafka=dict(option("kafka")), **given)


# What the second side has from the first unless it is given its own.
_SHARED = frozenset({"bootstrap", "by", "compare", "kafka", "start", "end"})


def _writable(name: str | None) -> str | None:
    """An audit may take long: where its page goes is tried before."""
    if name is not None:
        try:
            Path(name).touch()
        except OSError as error:
            raise CommandError(f"cannot write {name}: {error.strerror}") from None
    return name


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    elif has_colours(sys.stdout):
        from rich.console import Console

        first, _, rest = report.text().partition("\n")
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.print(first, style="bold green" if report.is_clean else "bold red")
        console.print(rest, end="")
    else:
        print(report.text(), end="")
