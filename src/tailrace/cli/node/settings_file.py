"""A node's settings from a TOML file. Keys are Kafka's names, dotted or quoted; values are TOML's own types."""

from __future__ import annotations

import tomllib

from tailrace.cli import CommandError
from tailrace.model.config import BrokerConfig, flatten, parse_broker_config
from tailrace.model.errors import KafkaError


def read_settings(path: str) -> BrokerConfig:
    try:
        with open(path, "rb") as file:
            return parse_broker_config(flatten(tomllib.load(file)))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path} is not TOML: {error}") from None
    except KafkaError as error:
        raise CommandError(f"{path}: {error.message}") from None
