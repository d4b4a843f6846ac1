"""Objects out of pieces: however they are cut, the same ones come out, and what is no JSON is known as such."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.apps.gateway.errors import GatewayError
from tailrace.apps.gateway.produce.json_stream import JsonStream, parse_json

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.text(), ANY, max_size=3), max_size=4), st.data())
def test_objects_come_out_however_they_are_cut(objects: list, data: st.DataObject):
    spaces = st.sampled_from(["", " ", "\r\n", "\n\t "])
    is_ascii = data.draw(st.booleans())
    text = "".join(json.dumps(each, ensure_ascii=is_ascii) + data.draw(spaces) for each in objects)
    body = text.encode("utf-8", "surrogatepass") if is_ascii else text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    stream = JsonStream(1 << 20)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += stream.feed(body[start:end])
    found += stream.feed(b"", is_last=True)
    assert stream.failure is None
    assert found == objects


def test_an_escape_may_be_cut_off_from_what_it_escapes():
    body = rb'{"a\"": 1} {}'
    for cut in range(len(body)):
        stream = JsonStream(1 << 20)
        found = [*stream.feed(body[:cut]), *stream.feed(body[cut:]), *stream.feed(b"", is_last=True)]
        assert stream.failure is None
        assert found == [{'a"': 1}, {}]


@pytest.mark.parametrize(
    ("body", "before", "status"),
    [
        (b'{"a":1} {"b" oops}', 1, 400),
        (b'{"a":1} [1]', 1, 400),
        (b'{"a":1} {"b":', 1, 400),
        (b"hello", 0, 400),
        (b'{"a":NaN}', 0, 400),
        (b'{"a":"\xff"}', 0, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 0, 400),
        (b'{"a":"' + b"x" * 2000 + b'"}', 0, 413),
        (b'{"a":"' + b"x" * 2000, 0, 413),
        (b'{"a":' + b"9" * 5000 + b"}", 0, 400),
    ],
)
def test_what_came_before_a_failure_counts(body: bytes, before: int, status: int):
    stream = JsonStream(1000 if status == 413 else 1 << 20)
    assert len(stream.feed(body, is_last=True)) == before
    assert stream.failure is not None
    assert stream.failure.status == status


def test_an_object_is_given_as_soon_as_it_ends():
    stream = JsonStream(1000)
    assert stream.feed(b'{"a": "}') == []
    assert stream.feed(b'\\"{"') == []
    assert stream.feed(b'} {"b"') == [{"a": '}"{'}]
    assert stream.feed(b":1}") == [{"b": 1}]


def test_a_large_object_in_many_pieces_is_not_read_again_with_each(monkeypatch: pytest.MonkeyPatch):
    from tailrace.apps.gateway.produce import json_stream

    tried: list[int] = []
    decoder = json_stream._DECODER

    class Counting:
        def raw_decode(self, text: str, position: int) -> object:
            tried.append(len(text))
            return decoder.raw_decode(text, position)

    monkeypatch.setattr(json_stream, "_DECODER", Counting())
    stream = JsonStream(1 << 20)
    body = json.dumps({"a": "x" * 100_000, "b": list(range(1000))}).encode()
    found = []
    for start in range(0, len(body), 100):
        found += stream.feed(body[start : start + 100])
    assert len(found) == 1
    assert len(tried) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b"Infinity", b"1 2"])
def test_a_body_that_is_no_document(body: bytes):
    with pytest.raises(GatewayError) as failure:
        parse_json(body)
    assert failure.value.status == 400
