"""A node's settings from a file: TOML, whose keys are Kafka's names, dotted or quoted, with TOML's own types as values;
or a .properties file, as Kafka's brokers have it."""

from __future__ import annotations

import tomllib

from tailrace.cli import CommandError
from tailrace.client.security.properties import parse_properties
from tailrace.model.config import BrokerConfig, flatten, parse_broker_config
from tailrace.model.errors import KafkaError


def read_settings(path: str) -> BrokerConfig:
    return read_given(path)[1]


def read_given(path: str) -> tuple[dict[str, str], BrokerConfig]:
    """The settings as they are written, too, by name."""
    try:
        given = _read_properties(path) if path.endswith(".properties") else _read_toml(path)
        config = parse_broker_config(given)
        _warn_if_open(path, config)
        return given, config
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path} is not TOML: {error}") from None
    except KafkaError as error:
        raise CommandError(f"{path}: {error.message}") from None


def _warn_if_open(path: str, config: BrokerConfig) -> None:
    if any(row.sensitive and config.value(row) for row in config.SETTINGS.values()):
        from tailrace.cli.secure.passwords import warn_if_open

        warn_if_open(path)


def _read_toml(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        return flatten(tomllib.load(file))


def _read_properties(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8") as file:
        # Blanks at the end of a line are part of the value in Java; Kafka drops them.
        return {name: value.strip() for name, value in parse_properties(file.read()).items()}
