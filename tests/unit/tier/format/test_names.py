"""Names of objects: unique, sorted by offset, and whose they are can be read from them."""

import pytest

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import (
    ManifestName,
    SegmentName,
    TieredPartition,
    manifest_name,
    parse_name,
    segment_name,
)

OWNER = TieredPartition(Uuid(bytes(range(16))), PartitionIndex(12))
ID = Uuid(bytes([255] * 16))


def test_names_say_what_they_are_of() -> None:
    name = segment_name("cluster", OWNER, 1234, ID)
    assert name == "cluster/AAECAwQFBgcICQoLDA0ODw/12/00000000000000001234-_____________________w.segment"
    assert parse_name("cluster", name) == SegmentName(OWNER, 1234, ID)
    assert parse_name("cluster", manifest_name("cluster", OWNER, 5)) == ManifestName(OWNER, 5)


def test_they_sort_by_offset() -> None:
    offsets = [0, 9, 10, 99, 10**12, 2**63 - 1]
    assert sorted(segment_name("c", OWNER, each, ID) for each in reversed(offsets)) == [
        segment_name("c", OWNER, each, ID) for each in offsets
    ]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cluster.json",
        "other/AAECAwQFBgcICQoLDA0ODw/12/00000000000000001234-_____________________w.segment",
        "cluster/AAECAwQFBgcICQoLDA0ODw/x/00000000000000001234-_____________________w.segment",
        "cluster/nonsense/12/00000000000000001234-_____________________w.segment",
        "cluster/AAECAwQFBgcICQoLDA0ODw/12/1234-_____________________w.segment",
        "cluster/AAECAwQFBgcICQoLDA0ODw/12/00000000000000001234-_____________________w.log",
        "cluster/AAECAwQFBgcICQoLDA0ODw/12/00000000000000001234.txt",
    ],
)
def test_what_is_not_ours_has_no_meaning(name: str) -> None:
    assert parse_name("cluster", name) is None
