"""Which value of a setting holds, and where it comes from: topic or group, dynamic broker, dynamic default, file,
default.

Pure functions of an image and a broker's own settings. The broker applies what they give; DescribeConfigs and
CreateTopics tell it to clients.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.model.config import (
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    GroupConfig,
    TopicConfig,
    apply_dynamic,
    apply_group,
    apply_topic,
    format_value,
)
from tailrace.model.listeners import PREFIX, find_setting, is_store_setting
from tailrace.model.settings import Kind, Setting


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Entry(NamedTuple):
    """A value of a setting in one place, as text; None for no value."""

    name: str
    value: str | None
    source: Source


Layers = Sequence[tuple[Source, Mapping[str, str]]]


def broker_config(static: BrokerConfig, image: MetadataImage) -> BrokerConfig:
    """The settings of a broker as they hold now; `static` itself if no dynamic ones are set."""
    everyone = image.config(ResourceType.BROKER, "")
    own = image.config(ResourceType.BROKER, str(static.node_id))
    return apply_dynamic(static, everyone, own)


def topic_config(broker: BrokerConfig, image: MetadataImage, topic: str) -> TopicConfig:
    """`broker` with its dynamic settings applied."""
    return apply_topic(broker, image.config(ResourceType.TOPIC, topic))


def group_config(broker: BrokerConfig, image: MetadataImage, group_id: str) -> GroupConfig:
    """`broker` with its dynamic settings applied."""
    return apply_group(broker, image.config(ResourceType.GROUP, group_id))


def broker_layers(static: BrokerConfig, image: MetadataImage) -> Layers:
    """What is set for a broker in each place, the first place winning."""
    given = {
        row.name: format_value(row, static.value(row)) for row in SETTINGS.values() if row.attribute in static.given
    }
    given |= dict(static.listener_settings)
    defaults = {row.name: format_value(row, row.default) for row in SETTINGS.values()}
    return (
        (Source.DYNAMIC_BROKER, image.config(ResourceType.BROKER, str(static.node_id))),
        (Source.DYNAMIC_DEFAULT_BROKER, image.config(ResourceType.BROKER, "")),
        (Source.STATIC_BROKER, {name: text for name, text in given.items() if text is not None}),
        (Source.DEFAULT, {name: text for name, text in defaults.items() if text is not None}),
    )


def broker_synonyms(name: str, layers: Layers) -> list[Entry]:
    """All values that a broker setting has, the one that holds first. Settings in other units stand in for one
    another, as log.retention.hours for log.retention.ms; as in Kafka, those before the first value of `name` itself
    are not listed. That of a listener has the general one behind it."""
    found = find_setting(name) if name.startswith(PREFIX) else None
    group = _SYNONYM_GROUPS.get(name, (name,)) if found is None else (name, found[1].name)
    entries = (
        Entry(synonym, texts[synonym], source) for source, texts in layers for synonym in group if synonym in texts
    )
    return list(dropwhile(lambda entry: entry.name != name, entries))


def further_settings(layers: Layers) -> list[Setting]:
    """What is set beside the tables, as rows: for single listeners, and names that mean nothing here."""
    rows = []
    for name in sorted({name for _source, texts in layers for name in texts if name not in SETTINGS}):
        found = find_setting(name) if name.startswith(PREFIX) else None
        # Nobody knows what it is: as in Kafka it may be a secret.
        row = copy(found[1]) if found is not None else Setting(Kind.UNKNOWN, default=None, doc="", sensitive=True)
        row.name, row.dynamic, row.scope = name, is_store_setting(name), "broker"
        rows.append(row)
    return rows


def topic_entry(setting: Setting, config: TopicConfig, overrides: Mapping[str, str], layers: Layers) -> Entry:
    """The value of a topic setting that holds. `config` is the topic's own, so units are already converted."""
    given = overrides.get(setting.name)
    if given is not None and setting.kind is Kind.LIST:
        # The order in which a list was written is kept, though it may mean nothing.
        return Entry(setting.name, ",".join(part.strip() for part in given.split(",")), Source.TOPIC)
    return Entry(setting.name, format_value(setting, config.value(setting)), _topic_source(setting, given, layers))


def topic_entries(config: TopicConfig, overrides: Mapping[str, str], layers: Layers) -> list[Entry]:
    """All of them, by name."""
    listed = sorted(name for name, row in TOPIC_SETTINGS.items() if not row.internal)
    return [topic_entry(TOPIC_SETTINGS[name], config, overrides, layers) for name in listed]


def _topic_source(setting: Setting, given: str | None, layers: Layers) -> Source:
    if given is not None:
        return Source.TOPIC
    for source, texts in layers:
        if any(synonym.name in texts for synonym in setting.broker_synonyms):
            return source
    return Source.DEFAULT


_SYNONYM_GROUPS: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(other.name for other in row.broker_synonyms)
    for row in TOPIC_SETTINGS.values()
    for synonym in row.broker_synonyms
}
