"""What is hidden stays hidden, however it is written; what no rule speaks of stays as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.apps.console.reading.masks import HIDDEN, MaskError, Masks, read_masks
from tailrace.apps.console.reading.views import View
from tailrace.wire.payload import Record

CARD = "4111111111111111"
RULES = """\
[[mask]]
topics = "orders.*"
fields = ["value.card", "value.items[*].price", "value.people.name", "value.any.*.secret", "header.ssn"]
[[mask]]
topics = ".*"
patterns = ["[0-9]{16}"]
[[mask]]
topics = "keys|whole"
fields = ["key"]
[[mask]]
topics = "whole"
fields = ["value"]
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "masks.toml"
    path.write_text(RULES)
    return read_masks(str(path))


def hide(rules, topic, value, key=b"k", headers=()):
    return Masks(rules, topic).hide(Record(0, 0, key, value, headers))


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"card": 1, "id": 2}, {"card": HIDDEN, "id": 2}),
        ({"card": {"number": 1}}, {"card": HIDDEN}),
        ({"items": [{"price": 1}, {"price": 2, "n": 3}]}, {"items": [{"price": HIDDEN}, {"price": HIDDEN, "n": 3}]}),
        ({"people": [{"name": "ann"}]}, {"people": [{"name": HIDDEN}]}),
        (
            {"any": {"a": {"secret": 1}, "b": {"secret": 2}}},
            {"any": {"a": {"secret": HIDDEN}, "b": {"secret": HIDDEN}}},
        ),
        ([{"card": 1}], [{"card": HIDDEN}]),
    ],
)
def test_fields_are_hidden_wherever_they_are(rules, value, seen):
    assert json.loads(hide(rules, "orders-eu", json.dumps(value).encode()).value) == seen


def test_what_no_rule_speaks_of_stays_as_it_was_written(rules):
    value = b'{ "id":1.10 }'
    record = Record(0, 0, b"k", value, (("trace", b"t"), ("none", None)))
    assert Masks(rules, "orders").hide(record) == record
    assert not Masks(rules[:1], "clicks")
    assert hide(rules, "clicks", None).value is None


@pytest.mark.parametrize("value", [b"card=1", b'{"card": 1, "card": 2}', b"\x00\x00\x00\x00\x07abc", b"[" * 5000])
def test_what_cannot_be_opened_is_hidden_as_a_whole(rules, value):
    assert hide(rules, "orders", value).value == HIDDEN.encode()


def test_keys_headers_and_whole_values(rules):
    assert hide(rules, "keys", b"v").key == HIDDEN.encode()
    assert hide(rules, "whole", b"v")[2:4] == (HIDDEN.encode(), HIDDEN.encode())
    headers = (("ssn", b"1"), ("ssn", b"2"), ("other", b"3"), ("card", CARD.encode()))
    assert [each for _, each in hide(rules, "orders", b"{}", headers=headers).headers] == [b"***", b"***", b"3", b"***"]


@given(before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_a_text_is_found_among_any_bytes(before, after):
    import re2

    from tailrace.apps.console.reading.masks import Rule

    masks = Masks([Rule(re2.compile(".*"), (), (re2.compile("[0-9]{16}"),))], "t")
    value = before + CARD.encode() + after
    seen = masks.hide(Record(0, 0, value, value, (("h", value),)))
    for content in (seen.key, seen.value, seen.headers[0][1]):
        assert CARD.encode() not in content


def test_escapes_of_json_hide_nothing_from_a_rule(rules):
    value = ('{"n": "' + "".join(f"\\u{ord(each):04x}" for each in CARD) + '"}').encode()
    assert json.loads(hide(rules, "clicks", value).value) == {"n": HIDDEN}


def test_a_view_tells_that_something_is_masked_and_not_what(rules):
    view = View(masks=Masks(rules, "orders"))
    seen, notes = view.see(Record(0, 0, None, b'{"card": 7}'))
    assert (seen.value, notes.is_masked) == (b'{"card": "***"}', True)
    assert view.see(Record(0, 0, None, b'{"id": 7}'))[1].is_masked is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no [[mask]]"),
        ("[[mask]]\nfields = ['value']", "topics is missing"),
        ("[[mask]]\ntopics = 'a'", "give fields or patterns"),
        ("[[mask]]\ntopics = '('\nfields = ['value']", "is no regular expression"),
        ("[[mask]]\ntopics = 'a'\nfields = ['body.x']", "is no field"),
        ("[[mask]]\ntopics = 'a'\nfields = ['value..x']", "is no field"),
        ("[[mask]]\ntopics = 'a'\nfields = 'value'", "is a list of texts"),
        ("[[mask]]\ntopics = 'a'\nfield = ['value']", "field is unknown"),
        ("mask = 1", "has no [[mask]]"),
        ("x", "is not TOML"),
    ],
)
def test_a_wrong_file_is_told(tmp_path, text, reason):
    path = tmp_path / "masks.toml"
    path.write_text(text)
    with pytest.raises(MaskError, match=reason.replace("[", r"\[")):
        read_masks(str(path))
    with pytest.raises(MaskError, match="cannot read"):
        read_masks(str(tmp_path / "none"))
