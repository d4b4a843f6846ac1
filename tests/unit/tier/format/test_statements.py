"""What is told of the cluster as JSON, however long it is."""

import json

import pytest

from tailrace.tier.format.statements import read_statement, write_statement


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1203])
def test_long_lists_are_written_in_pieces_as_any_other(count: int) -> None:
    content = {
        "name": "a, [b]",
        "rows": [[number, "x]", [number]] for number in range(count)],
        "of": {"a": None},
        "e": [],
    }
    data = write_statement("manifest", 1, content)
    assert read_statement("manifest", 1, "m", data) == content
    assert data.partition(b"\n")[2] == json.dumps(content, separators=(",", ":")).encode()
