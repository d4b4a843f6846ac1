"""Subjects and contexts, as Confluent writes them."""

import pytest

from tailrace.apps.registry.state.names import (
    Subject,
    is_valid_subject,
    normalize_context,
    normalize_subject,
    parse_subject,
    qualify,
)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("orders-value", Subject(".", "orders-value")),
        (":.ctx:orders-value", Subject(".ctx", "orders-value")),
        (":.ctx:", Subject(".ctx", "")),
        (":.ctx", Subject(".ctx", "")),
        (":.:orders", Subject(".", "orders")),
        (":*:orders", Subject("*", "orders")),
        (":not:a:context", Subject(".", ":not:a:context")),
    ],
)
def test_a_subject_is_a_context_and_a_name(text, subject):
    assert parse_subject(text) == subject


def test_the_default_context_is_never_written():
    assert normalize_subject(":.:orders") == "orders"


@pytest.mark.parametrize("text", ["ctx", ".ctx", ":.ctx:", ":.ctx"])
def test_a_context_may_be_written_in_many_ways(text):
    assert normalize_context(text) == ":.ctx:"


def test_a_context_has_no_colon():
    with pytest.raises(ValueError, match="cannot contain a colon"):
        normalize_context(".a:b")


def test_a_name_in_a_schema_is_of_its_own_context():
    assert qualify(":.ctx:orders-value", "address") == ":.ctx:address"
    assert qualify(":.ctx:orders-value", ":.other:address") == ":.other:address"
    assert qualify("orders-value", "address") == "address"


@pytest.mark.parametrize("text", ["a\nb", "__GLOBAL", "__EMPTY", ":.ctx:", ":.__GLOBAL:orders", "a\x7fb"])
def test_names_that_are_no_subjects(text):
    assert not is_valid_subject(text)


def test_settings_may_be_of_contexts():
    assert is_valid_subject(":.ctx:", for_settings=True)
    assert is_valid_subject(":.__GLOBAL:", for_settings=True)
