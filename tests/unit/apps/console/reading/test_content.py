"""What bytes are shown as."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.apps.console.reading.content import in_words, show
from tailrace.wire.apis.stored_records import OffsetCommitKey, OffsetCommitValue
from tailrace.wire.payload import Record
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value


def test_forms():
    assert show(None, limit_bytes=100).form == "null"
    assert show(b"", limit_bytes=100).form == "empty"
    assert show(b'{"a": [1]}', limit_bytes=100).text == '{\n  "a": [\n    1\n  ]\n}'
    assert show("grün".encode(), limit_bytes=100) == ("text", "grün", 5, False)
    assert show(b"{broken", limit_bytes=100).form == "text"
    hexadecimal = show(b"\x00\xffA", limit_bytes=100)
    assert hexadecimal.form == "hex"
    assert hexadecimal.text.startswith("00000000  00 ff 41")
    assert hexadecimal.text.endswith("..A")


def test_a_large_record_shows_its_beginning():
    shown = show(b"x" * 100_000_000, limit_bytes=1024)
    assert (shown.form, len(shown.text), shown.size_bytes, shown.is_cut) == ("text", 1024, 100_000_000, True)
    # A cut through a character is no reason to call a text binary.
    assert show("ü".encode() * 1000, limit_bytes=1023).form == "text"


def test_coordinators_records_in_words():
    key = encode_coordinator_key(OffsetCommitKey(group="billing", topic="orders", partition=3))
    value = encode_coordinator_value(OffsetCommitValue(offset=42, metadata=""))
    words = in_words("__consumer_offsets", Record(0, 0, key, value))
    assert words is not None
    assert "billing" in words[0]
    assert "42" in words[1]
    assert in_words("__consumer_offsets", Record(0, 0, key, None))[1] == "deleted"
    assert in_words("orders", Record(0, 0, key, value)) is None


@given(st.binary(max_size=200), st.integers(16, 100))
def test_anything_can_be_shown(data, limit):
    shown = show(data, limit_bytes=limit)
    assert shown.size_bytes == len(data)
    in_words("__consumer_offsets", Record(0, 0, data, data))
    in_words("__transaction_state", Record(0, 0, data, None))
