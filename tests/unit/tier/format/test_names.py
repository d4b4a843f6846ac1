"""Names of objects: unique, sorted by offset, and whose they are can be read from them."""

import pytest

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import (
    ManifestName,
    ManifestVersion,
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
    manifest = ManifestName("orders.v1", OWNER, ManifestVersion(0, 5, 3, 1))
    name = manifest_name("cluster", manifest)
    assert name == (
        "cluster/manifests/orders.v1/AAECAwQFBgcICQoLDA0ODw/12/"
        "0000000000-00000000000000000005-0000000003-0000000001.manifest"
    )
    assert parse_name("cluster", name) == manifest


def test_they_sort_by_offset() -> None:
    offsets = [0, 9, 10, 99, 10**12, 2**63 - 1]
    assert sorted(segment_name("c", OWNER, each, ID) for each in reversed(offsets)) == [
        segment_name("c", OWNER, each, ID) for each in offsets
    ]


def test_versions_sort_as_they_followed_on_each_other() -> None:
    versions = [(0, 9, 3, 7), (0, 10, 2, 1), (0, 10, 3, 1), (0, 10, 3, 12), (1, 0, 0, 1)]
    names = [manifest_name("c", ManifestName("t", OWNER, ManifestVersion(*each))) for each in versions]
    assert sorted(set(names)) == names


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cluster/manifests/orders/AAECAwQFBgcICQoLDA0ODw/12/00000000000000000005.manifest",
        "cluster/manifests/orders/AAECAwQFBgcICQoLDA0ODw/12/0000000000-00000000000000000005-0000000003-0000000001",
        "cluster/manifests/AAECAwQFBgcICQoLDA0ODw/12/0000000000-00000000000000000005-0000000003-0000000001.manifest",
        "cluster/manifests/orders/AAECAwQFBgcICQoLDA0ODw/-1/0000000000-00000000000000000005-0000000003-0000000001.manifest",
        "cluster/AAECAwQFBgcICQoLDA0ODw/12/0000000000000000123\u0664-_____________________w.segment",
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
