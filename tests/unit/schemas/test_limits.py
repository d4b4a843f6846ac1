"""What a schema may ask of whoever parses it is bounded, and the bounds can be moved."""

import json
import sys

import pytest

from tailrace.schemas import InvalidSchema, Limits, check, parse
from tailrace.schemas.limits import FRAMES_A_LEVEL, NESTING_MAX, PROTOBUF_NESTING_MAX

# As deep as they say, in the form that takes most frames.
NESTED = {
    "AVRO": lambda levels: '{"type":"array","items":' * levels + '"int"' + "}" * levels,
    "JSON": lambda levels: '{"items":' * (levels - 1) + '{"type":"string"}' + "}" * (levels - 1),
    "PROTOBUF": lambda levels: "".join(f"message M{number} {{" for number in range(levels)) + "}" * levels,
}


def judge(kind: str, levels: int, limits: Limits) -> None:
    schema = parse(kind, NESTED[kind](levels), {}, limits)
    assert schema.normalized()
    assert not check("FULL", schema, [(1, schema)])


@pytest.mark.parametrize(("kind", "most"), [("AVRO", NESTING_MAX), ("JSON", NESTING_MAX), ("PROTOBUF", 100)])
def test_nesting(kind, most):
    judge(kind, most, Limits())
    with pytest.raises(InvalidSchema, match=f"nested more than {most} levels deep"):
        judge(kind, most + 1, Limits())
    judge(kind, 20, Limits(nesting_max=20))
    with pytest.raises(InvalidSchema, match="nested more than 20 levels deep"):
        judge(kind, 21, Limits(nesting_max=20))


def test_more_levels_take_more_frames():
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1000 * FRAMES_A_LEVEL)
        for kind in ("AVRO", "JSON"):
            judge(kind, 1000, Limits(nesting_max=1000))
        with pytest.raises(InvalidSchema, match=f"more than {PROTOBUF_NESTING_MAX} levels"):
            judge("PROTOBUF", PROTOBUF_NESTING_MAX + 1, Limits(nesting_max=1000))
    finally:
        sys.setrecursionlimit(before)


def test_comparisons_end():
    def any_of(prefix: str) -> str:
        options = [{"type": "object", "properties": {f"{prefix}{number}": {"const": number}}} for number in range(40)]
        return json.dumps({"anyOf": options})

    old = parse("JSON", any_of("a"), {})
    assert check("BACKWARD", parse("JSON", any_of("b"), {}), [(1, old)]) is not None
    few = parse("JSON", any_of("b"), {}, Limits(pairs_max=100))
    with pytest.raises(InvalidSchema, match="more than 100 pairs"):
        check("BACKWARD", few, [(1, old)])
