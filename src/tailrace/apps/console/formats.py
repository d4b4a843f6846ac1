"""Numbers and times as people read them; the filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

NOTHING = "\N{EN DASH}"
_BYTES = ("B", "KB", "MB", "GB", "TB", "PB")


def bytes_text(size: float | None) -> str:
    if size is None or size < 0:
        return NOTHING
    for unit in _BYTES:
        if size < 1000 or unit == _BYTES[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return ""


def count_text(count: float | None) -> str:
    return NOTHING if count is None else f"{count:,.0f}"


def rate_text(rate: float | None) -> str:
    if rate is None:
        return NOTHING
    return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.1f}/s"


def time_text(at_ms: int) -> str:
    """In UTC: logs and other people's screens are."""
    if at_ms < 0:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"


def duration_text(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def told(number: float | None, unit: str) -> str:
    return _UNITS[unit](number)


_UNITS = {"bytes": bytes_text, "count": count_text, "rate": rate_text}

FILTERS = {
    "told": told,
    "bytes": bytes_text,
    "count": count_text,
    "rate": rate_text,
    "time": time_text,
    "duration": duration_text,
    "plain": lambda value: f"{value:.15g}",
    "segment": lambda text: quote(str(text), safe=""),
}
