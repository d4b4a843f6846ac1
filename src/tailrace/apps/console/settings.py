"""Settings of a topic or a broker: as people read them, and one of them changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.formats import bytes_text, duration_text
from tailrace.apps.console.web import Console, confirmed, done, field
from tailrace.client.admin import CONFIG_SOURCES, SOURCE_DEFAULT, Admin, ConfigEntry
from tailrace.model.errors import ErrorCode, KafkaError

# Below it the number itself is read as easily.
_HINT_MIN = 10_000
# Kafka's way to say never.
_NEVER = (1 << 63) - 1


class Setting(NamedTuple):
    name: str
    value: str | None
    hint: str  # The value in larger units; empty where it says the same.
    default: str | None
    source: str
    is_own: bool
    is_read_only: bool


def shown_settings(entries: Sequence[ConfigEntry], *, own: int) -> list[Setting]:
    """Those that were set at its `own` place first."""
    shown = [_shown(entry, own) for entry in entries]
    return sorted(shown, key=lambda each: (not each.is_own, each.name))


def _shown(entry: ConfigEntry, own: int) -> Setting:
    # What it would be if this place said nothing: the next one that sets it.
    default = next((each.value for each in entry.synonyms if each.source != own), None)
    if default is None and entry.source == SOURCE_DEFAULT:
        default = entry.value
    source = CONFIG_SOURCES.get(entry.source, "unknown")
    return Setting(
        entry.name,
        entry.value,
        hint(entry.name, entry.value),
        "(hidden)" if entry.is_sensitive else default,
        source,
        entry.source == own,
        entry.is_read_only,
    )


def hint(name: str, value: str | None) -> str:
    if value is None or not value.isdecimal() or int(value) < _HINT_MIN:
        return ""
    if int(value) == _NEVER:
        return "no limit"
    if name.endswith(".ms"):
        return duration_text(int(value))
    return bytes_text(int(value)) if name.endswith(".bytes") else ""


async def alter_setting(
    console: Console, visit: Visit, request: Request, resource_type: int, name: str, *, back: str
) -> Response:
    """Of the topic or broker `name`, whose page is `back`."""
    setting, value = field(request, "setting"), field(request, "value")
    if not setting:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no setting is named: choose one, such as retention.ms")
    is_removed = "remove" in request.state.form
    admin = Admin(visit.cluster)
    changes = {} if is_removed else {setting: value}
    removals = [setting] if is_removed else []
    await admin.alter_configs(resource_type, name, changes=changes, removals=removals, validate_only=True)
    before = {entry.name: entry.value for entry in await admin.configs_of(resource_type, name)}.get(setting)
    after = "goes back to its default" if is_removed else f"becomes {value}"
    page = confirmed(
        console,
        visit,
        request,
        title=f"Change {setting} of {name}",
        words=[f"{setting} is {before} now and {after}."],
        is_asked=True,
    )
    if page is not None:
        return page
    await admin.alter_configs(resource_type, name, changes=changes, removals=removals)
    return done(back, f"{setting} of {name} was changed.")
