"""An export: what was written is read, and nothing else."""

import pytest

from tailrace.model.ids import Uuid
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.names import ExportVersion, export_name, parse_export_name, parse_name
from tailrace.tier.metadata.export import Export, ExportedOffset, ExportedTopic, read_export, write_export

EXPORT = Export(
    "cluster",
    ExportVersion(2, 7, 1_767_225_600_000),
    4_000,
    [ExportedTopic("orders", Uuid(bytes(range(16))), {"remote.storage.enable": "true"}, [3, 0])],
    [
        ExportedOffset("g", "orders", 0, 17, 3, "so far"),
        ExportedOffset("g", "orders", 1, 0, -1, ""),
        ExportedOffset("ü/\n", "orders", 0, 1 << 62, 3, '"'),
    ],
)


def test_what_is_written_is_read():
    assert read_export(EXPORT.name, write_export(EXPORT)) == EXPORT
    assert parse_export_name("cluster", EXPORT.name) == EXPORT.version
    assert parse_name("cluster", EXPORT.name) is None, "it is no segment and no manifest"


@pytest.mark.parametrize("position", [0, 5, 60, -1])
def test_damage_is_seen(position: int):
    data = bytearray(write_export(EXPORT))
    data[position] ^= 1
    with pytest.raises(DamagedObjectError, match=EXPORT.name):
        read_export(EXPORT.name, bytes(data))


def test_another_one_under_its_name_is_seen():
    other = export_name("cluster", EXPORT.version._replace(written_ms=5))
    with pytest.raises(DamagedObjectError, match="holds another export"):
        read_export(other, write_export(EXPORT))
    with pytest.raises(DamagedObjectError):
        read_export(EXPORT.name, write_export(EXPORT)[:-1])


@pytest.mark.parametrize(
    "name", ["cluster/exports/1-2-3.export", "other/exports/x", "cluster/exports/a", "cluster.json"]
)
def test_other_names(name: str):
    assert parse_export_name("cluster", name) is None


def test_versions_sort_as_they_followed():
    versions = [
        ExportVersion(0, 9, 10**12),
        ExportVersion(1, 0, 5),
        ExportVersion(1, 2, 3),
        ExportVersion(1, 2, 10**13),
    ]
    names = [export_name("cluster", each) for each in versions]
    assert names == sorted(names)
