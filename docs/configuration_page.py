"""Writes docs/configuration.md from the tables of settings: `python docs/configuration_page.py`."""

from collections.abc import Callable, Iterable
from pathlib import Path

from tailrace.model.config import GROUP_SETTINGS, SETTINGS, TOPIC_SETTINGS
from tailrace.model.settings import LONG_MAX, Setting, format_value

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Settings

Generated from `tailrace.model.config` by `docs/configuration_page.py`.

Names, defaults and bounds are those of Kafka 4.3. A name in *italics* is our own, or has another default than Kafka's,
and says why. A file for `tailrace broker --config` is TOML whose keys are these names, dotted or as nested tables:

```toml
node.id = 1
listeners = "PLAINTEXT://127.0.0.1:9092"
log.dirs = ["/var/lib/tailrace"]
```

A topic setting is looked up in the topic, then in the dynamic settings of the broker, in those of all brokers, in the
broker's file, and last in the defaults below. The broker settings that give it its default are named beside it.

Settings of TLS and SASL may be written for one listener, as `listener.name.<name>.<setting>`, and those of SASL for one
mechanism of it, as `listener.name.<name>.<mechanism>.<setting>`. The more special one wins, and `sasl.jaas.config` is
read in its most special form alone.

A `server.properties` of Kafka is taken as it is, by its ending: by `tailrace format -c server.properties`, and then by
`tailrace broker -c server.properties`. What is said to have no effect is checked, kept and shown all the same, and a
start names it in a warning. Settings of Kafka whose loss would change what is protected or promised are refused, with
the reason: those of policies and plugins of remote storage.
"""


def render() -> str:
    parts = [
        INTRODUCTION,
        "## Topics\n\nAll of them can be changed while the topic is in use.\n",
        _table(TOPIC_SETTINGS.values(), "broker settings", _synonyms),
        "## Groups\n\nOf the consumer protocol (KIP-848), each within the bounds that the brokers set.\n",
        _table(GROUP_SETTINGS.values(), "broker settings", _synonyms),
        "## Brokers\n\nThe dynamic ones can be changed while the broker runs; the others are read at its start.\n",
        _table(SETTINGS.values(), "dynamic", lambda row: "yes" if row.dynamic else ""),
    ]
    return "\n".join(parts)


def _table(settings: Iterable[Setting], title: str, last: Callable[[Setting], str]) -> str:
    lines = [f"| setting | type | default | allowed | {title} | |", "|---|---|---|---|---|---|"]
    for row in sorted(settings, key=lambda row: row.name):
        if not row.internal:
            name = f"*{_code(row.name)}*" if row.ours else _code(row.name)
            kind = row.kind.name.lower()
            lines.append(f"| {name} | {kind} | {_default(row)} | {_allowed(row)} | {last(row)} | {row.doc} |")
    return "\n".join(lines) + "\n"


def _synonyms(row: Setting) -> str:
    return ", ".join(_code(synonym.name) for synonym in row.broker_synonyms)


def _default(row: Setting) -> str:
    if row.required:
        return "(required)"
    if row.default == LONG_MAX:
        return "2^63 - 1"
    text = format_value(row, row.default)
    return _code(text) if text else ""


def _allowed(row: Setting) -> str:
    if row.choices:
        return ", ".join(map(_code, row.choices))
    if row.minimum is None:
        return ""
    bounds = f"{row.minimum} or more" if row.maximum is None else f"{row.minimum} to {row.maximum}"
    return bounds if row.also is None else f"{bounds}, or {row.also}"


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(render())
