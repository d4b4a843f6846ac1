"""The paragraph of README.md about all this, from results.json: ranges of ratios, of rows that hold and are warm."""

import fnmatch
import textwrap
from typing import Any

from bench.charts import figure_text
from bench.versus.results import Measured, read_rows

_BEGIN, _END = "<!-- bench.versus.page writes this: begin -->", "<!-- end -->"
_WIDTH = 135
_PAGE = "[docs/benchmarks.md](docs/benchmarks.md)"
_NOTHING_YET = (
    "`make bench-kafka` does the same work with Tailrace and with Apache Kafka 4.3 in turns, both warm, on your "
    f"machine; {_PAGE} is what was measured."
)
# What is said of the rows that fit, which figure of theirs it is, and whether it is told as a part, not as a multiple.
_CLAIMS = (
    ("its throughput of producing with one replica", ("produce-rf1-*",), "", False),
    ("with three", ("produce-rf3-*",), "", False),
    ("of consuming", ("consume-*",), "", False),
    ("of its p99 at 20,000 messages a second", ("ack-*-20k", "end-to-end-*-20k"), "p99", True),
    ("of the time to start", ("start-*",), "", True),
    ("of the memory under load", ("memory-load-*",), "", True),
    ("of the time of a failover with default settings", ("failover-leader",), "", True),
)


def fill(readme: str, text: str) -> str:
    """With that text between the marks."""
    before, rest = readme.split(_BEGIN)
    after = rest.split(_END)[1]
    return f"{before}{_BEGIN}\n{text}\n{_END}{after}"


def summary_text(results: dict[str, Any]) -> str:
    rows = read_rows(results)
    claims = [told for claim in _CLAIMS if (told := _claim(rows, *claim))]
    if not claims:
        return textwrap.fill(_NOTHING_YET, _WIDTH, break_on_hyphens=False, break_long_words=False)
    python = results["python"]
    built = " and ".join(f"{'with' if python[key] else 'without'} {key.upper()}" for key in ("pgo", "lto"))
    text = (
        f"Beside Apache Kafka 4.3 on {results['machine']['cores']} cores, client included, both warm "
        f"(`make bench-kafka`; {python['implementation']} {python['version']}, built {built}): {', '.join(claims)}. "
        f"{_behind(rows)} "
        f"{_PAGE} has all {len(results['rows'])} rows, those that we lose with the reason, and how cost grows."
    )
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _claim(rows: list[Measured], what: str, patterns: tuple[str, ...], figure: str, as_part: bool) -> str:
    found = sorted(
        ratio
        for row in rows
        if row.figure == figure
        and any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns)
        and (ratio := row.ratio)
    )
    if not found:
        return ""
    if as_part:
        found = sorted(1 / ratio for ratio in found)
    ends = list(dict.fromkeys(_short(value) for value in (found[0], found[-1])))
    return f"{' to '.join(ends)}{'' if as_part else ' times'} {what}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _behind(rows: list[Measured]) -> str:
    compared = {row.name for row in rows if row.ratio}
    behind = {row.name: row for row in rows if row.is_compared and row.ratio and row.ratio < 1 and not row.is_even}
    if not behind:
        return f"In none of {len(compared)} rows is it behind."
    worst = min(behind.values(), key=lambda row: row.ratio or 1)
    return (
        f"It is behind in {len(behind)} of {len(compared)} rows, the furthest in `{worst.name}` "
        f"({figure_text(worst.ratio or 0)}x)."
    )
