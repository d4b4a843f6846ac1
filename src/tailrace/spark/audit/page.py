"""The report as one HTML file: the verdict, every check with its evidence, figures and charts. It refers to nothing
outside itself, and everything that came out of records is escaped."""

from __future__ import annotations

from html import escape
from itertools import chain

from tailrace.spark.audit.declaration import KINDS
from tailrace.spark.audit.report import Check, Report, SideFigures, time_text
from tailrace.spark.charts import Bars, Series, bar_chart, line_chart

# A chart with more bars cannot be read; the table below it has all.
_PARTITIONS_DRAWN = 64

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{padding:.6rem 1rem;border-left:5px solid;font-weight:600}
.clean{border-color:#009e73;background:#e9f7f1}.differs{border-color:#d55e00;background:#fdeee5}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.found{color:#b34700;font-weight:600}.quiet{color:#666}li{overflow-wrap:anywhere}svg{width:100%;height:auto}
"""


def page(report: Report) -> str:
    kind = "clean" if report.is_clean else "differs"
    body = [
        f"<h1>{escape(report.name)}</h1>",
        f'<p class="quiet">{_subtitle(report)}</p>',
        f'<p class="verdict {kind}">{escape(report.verdict)}</p>',
        "<h2>Checks</h2>",
        _checks_table(report),
        *chain.from_iterable(_evidence(check) for check in report.checks),
        "<h2>Records</h2>",
        *_charts(report),
        *chain.from_iterable(_partitions_table(side) for side in (report.expected, report.actual)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(report.name)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _subtitle(report: Report) -> str:
    when = f"{time_text(int(report.finished * 1000))}, {report.duration_s:.1f} s"
    return escape(f"{report.expected.name} against {report.actual.name}, {when}")


def _checks_table(report: Report) -> str:
    rows = []
    for check in report.checks:
        kind = ' class="number found"' if check.records and not check.is_allowed else ' class="number"'
        allowed = " (allowed)" if check.is_allowed else ""
        rows.append(
            f"<tr><td>{check.kind}{allowed}</td><td{kind}>{check.records:,}</td><td>{escape(KINDS[check.kind])}</td></tr>"
        )
    for name, why in report.unchecked.items():
        rows.append(f'<tr class="quiet"><td>{name}</td><td class="number">not checked</td><td>{escape(why)}</td></tr>')
    return f'<table><tr><th>kind</th><th class="number">records</th><th>meaning</th></tr>{"".join(rows)}</table>'


def _evidence(check: Check) -> list[str]:
    if not check.samples:
        return []
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in check.samples)
    return [f"<h2>{check.kind}: {check.records:,}</h2>", f"<ul>{items}</ul>"]


def _charts(report: Report) -> list[str]:
    charts = []
    sides = (("expected", report.expected), ("actual", report.actual))
    lines = [
        Series(role, [(float(point.second), float(point.records)) for point in side.timeline])
        for role, side in sides
        if side.timeline
    ]
    if lines:
        charts.append(line_chart(f"records by time, per {report.step_s:,} s", lines))
    drawn = [(role, side) for role, side in sides if any(each.partition for each in side.partitions)]
    if drawn and all(len(side.partitions) <= _PARTITIONS_DRAWN for _, side in drawn):
        count = max(len(side.partitions) for _, side in drawn)
        bars = []
        for role, side in drawn:
            values = [float(each.records) for each in side.partitions]
            bars.append(Bars(role, values + [0.0] * (count - len(values))))
        charts.append(bar_chart("records by partition", [str(index) for index in range(count)], bars))
    found = [check for check in report.checks if check.records]
    if found:
        charts.append(
            bar_chart("differences", [check.kind for check in found], [Bars("", [float(c.records) for c in found])])
        )
    return charts


def _partitions_table(side: SideFigures) -> list[str]:
    rows = "".join(
        f"<tr><td>{escape(each.partition)}</td>"
        + "".join(
            f'<td class="number">{"" if value is None else value}</td>'
            for value in (
                f"{each.records:,}",
                each.first_offset,
                each.last_offset,
                time_text(each.first_timestamp),
                time_text(each.last_timestamp),
            )
        )
        + "</tr>"
        for each in side.partitions
        if each.partition
    )
    outcomes = "".join(f", {number:,} {name}" for name, number in side.outcomes.items())
    title = f"<h2>{escape(side.name)}: {side.records:,} records{outcomes}</h2>"
    if not rows:
        return [title]
    names = ("records", "first offset", "last offset", "first time", "last time")
    heads = "".join(f'<th class="number">{name}</th>' for name in names)
    return [title, f"<table><tr><th>partition</th>{heads}</tr>{rows}</table>"]
