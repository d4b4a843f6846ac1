"""The settings of a registry, and the page that lists them."""

from dataclasses import fields
from pathlib import Path

import pytest

from tailrace.apps.registry.settings import RegistrySettings, parse_registry_settings
from tailrace.model.errors import KafkaError

PAGE = Path(__file__).parents[4] / "docs" / "schemas.md"


def test_the_page_lists_them_all():
    text = PAGE.read_text()
    missing = [row.metadata["name"] for row in fields(RegistrySettings) if f"| `{row.metadata['name']}` |" not in text]
    assert not missing


def test_values_are_read_by_kind():
    settings = parse_registry_settings(
        {"leader.eligibility": "False", "kafkastore.timeout.ms": " 500 ", "schema.compatibility.level": "full"}
    )
    assert (settings.is_eligible, settings.store_timeout_ms, settings.compatibility) == (False, 500, "FULL")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("leader.eligibility", "yes"),
        ("kafkastore.timeout.ms", "soon"),
        ("kafkastore.timeout.ms", "0"),
        ("schema.nesting.max", "1001"),
        ("schema.compatibility.level", "SIDEWAYS"),
        ("authentication", "kerberos"),
    ],
)
def test_what_is_wrong_is_named(name, value):
    with pytest.raises(KafkaError, match=name):
        parse_registry_settings({name: value})
