"""`tailrace verify`: judges a recorded history of sends, polls and commits."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, print_json
from tailrace.verify.events import HistoryError
from tailrace.verify.findings import KINDS
from tailrace.verify.report import Figures, Report, verify

DESCRIPTION = (
    "Check what clients of any Kafka cluster recorded, as JSON lines, for records that were lost, "
    "doubled, aborted and yet read, read out of order, and the like; and tell what Kafka's model allows."
)
EXAMPLES = """\
examples:
  tailrace verify history.jsonl
  tailrace verify history.jsonl --allow skipped-poll --json
  jq -sc 'sort_by(.time)[]' producer.jsonl consumer.jsonl | tailrace verify -

The exit code is 1 if an anomaly was found. docs/verify.md describes the lines and the anomalies.
"""


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the history; - is stdin")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="KIND", choices=list(KINDS), help="take this for no anomaly"
    )
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="show N of each kind (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON lines: each finding, and the figures last")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with _opened(options.file) as lines:
        # Millions of objects live until the end, and none is garbage: looking for it took half of the time.
        gc.disable()
        try:
            report = verify(lines, options.allow)
        except HistoryError as error:
            raise CommandError(f"{options.file}, {error}") from error
        finally:
            gc.enable()
    if options.json:
        _print_json(report, options.limit)
    else:
        _print_text(report, options.limit)
    return 0 if report.is_clean else 1


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    if name == "-":
        yield sys.stdin
        return
    try:
        lines = open(name, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    with lines:
        yield lines


def _print_text(report: Report, limit: int) -> None:
    figures, findings = report
    print(_figures_text(figures))
    for kind, number in findings.counts_of_anomalies().items():
        print(f"\n{kind}: {number:,} ({KINDS[kind]})")
        for finding in findings.of(kind)[:limit]:
            print(f"  {finding.sentence}")
    allowed = findings.counts_of_allowed()
    if allowed:
        print("\nallowed:")
    for kind, number in allowed.items():
        print(f"  {kind}: {number:,}, such as: {findings.of(kind)[0].sentence}")
    total = sum(findings.counts_of_anomalies().values())
    print()
    if total:
        print(f"{total:,} anomalies" if total > 1 else "1 anomaly")
    else:
        print(
            "no anomaly found" + ("" if figures.drained else "; nothing was drained, so what nobody read is not known")
        )


def _figures_text(figures: Figures) -> str:
    text = (
        f"{count_text(figures.events, 'event')} of {figures.processes:,} processes over "
        f"{count_text(figures.partitions, 'partition')}: {figures.sent:,} sent, {figures.acknowledged:,} acknowledged, "
        f"{figures.unknown:,} unknown, {figures.read:,} read"
    )
    if figures.transactions:
        unknown = figures.transactions - figures.committed - figures.aborted
        text += f"; {count_text(figures.transactions, 'transaction')}: {figures.committed:,} committed, "
        text += f"{figures.aborted:,} aborted, {unknown:,} unknown"
    return text


def _print_json(report: Report, limit: int) -> None:
    figures, findings = report
    anomalies = findings.counts_of_anomalies()
    allowed = findings.counts_of_allowed()
    for kind in (*anomalies, *allowed):
        for finding in findings.of(kind)[:limit]:
            print_json({**finding._asdict(), "allowed": kind in allowed})
    print_json({"figures": figures._asdict(), "anomalies": anomalies, "allowed": allowed})
