"""Verdict and reason for pairs of schemas, from published rules. For Avro, Avro's own package judges every pair too."""

import json

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from tailrace.schemas import check, parse
from tests.golden.schemas import avro_pairs, json_pairs, protobuf_pairs


def test_there_are_enough_pairs():
    assert sum(1 for _ in avro_pairs.pairs()) + len(avro_pairs.NAMED) >= 300
    assert sum(1 for _ in json_pairs.pairs()) >= 300
    assert sum(1 for _ in protobuf_pairs.pairs()) >= 150


def test_avro_pairs():
    for name, reader, writer, rules in avro_pairs.pairs():
        found = check("BACKWARD", parse("AVRO", reader, {}), [(1, parse("AVRO", writer, {}))])
        assert (not found) == _avro_says(reader, writer), name
        assert {each.rule for each in found} <= rules, name


@pytest.mark.parametrize(("name", "reader", "writer", "rule", "path"), avro_pairs.NAMED)
def test_named_avro_pairs(name, reader, writer, rule, path):
    found = check("BACKWARD", parse("AVRO", json.dumps(reader), {}), [(1, parse("AVRO", json.dumps(writer), {}))])
    assert [(each.rule, each.path) for each in found] == ([] if rule is None else [(rule, path)])
    assert _avro_says(json.dumps(reader), json.dumps(writer)) == (rule is None)


def test_json_pairs():
    for name, original, update, rule, path, compatible in json_pairs.pairs():
        found = check("BACKWARD", parse("JSON", json.dumps(update), {}), [(1, parse("JSON", json.dumps(original), {}))])
        assert [(each.rule, each.path) for each in found] == ([] if compatible else [(rule, path)]), name


def test_protobuf_pairs():
    for name, original, update, rule, path, compatible in protobuf_pairs.pairs():
        found = check("BACKWARD", parse("PROTOBUF", update, {}), [(1, parse("PROTOBUF", original, {}))])
        assert [(each.rule, each.path) for each in found] == ([] if compatible else [(rule, path)]), name


def _avro_says(reader, writer):
    judged = ReaderWriterCompatibilityChecker().get_compatibility(avro.schema.parse(reader), avro.schema.parse(writer))
    return judged.compatibility is SchemaCompatibilityType.compatible
