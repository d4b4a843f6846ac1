"""Offsets in a checkpoint."""

import json

import pytest

from tailrace.model.ids import TopicPartition
from tailrace.spark.options.errors import OptionError
from tailrace.spark.source.offsets import from_json, to_json


def test_equal_offsets_have_equal_text():
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    text = json.dumps(to_json(offsets))
    assert text == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}}'
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text


@pytest.mark.parametrize("other", [{"logOffset": 3}, {"t": {"a": 1}}, {"t": {"0": None}}, {"t": [1]}])
def test_the_checkpoint_of_another_source(other: dict):
    with pytest.raises(OptionError, match="a checkpointLocation of its own"):
        from_json(other)
