"""Manifests say what was written under their name, or that they are damaged."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.layout import DamagedObjectError
from tailrace.tier.format.names import ManifestVersion, TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.manifest import Manifest, read_manifest, write_manifest

NUMBERS = st.integers(0, 2**62)
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
LINEAGES = st.lists(st.tuples(st.integers(0, 2**31 - 1), NUMBERS), max_size=4).map(tuple)
SEGMENTS = st.builds(
    RemoteSegment, UUIDS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 2**62), NUMBERS, LINEAGES, st.booleans()
)
MANIFESTS = st.builds(
    Manifest,
    cluster_id=st.just("cluster"),
    topic=st.just("orders"),
    owner=st.builds(TieredPartition, UUIDS, st.integers(0, 10**6).map(PartitionIndex)),
    version=st.builds(
        ManifestVersion, st.integers(0, 9), NUMBERS, st.integers(0, 2**31 - 1), st.integers(0, 10**10 - 1)
    ),
    written_ms=NUMBERS,
    partition_count=st.integers(1, 1000),
    settings=st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
    log_start_offset=NUMBERS,
    log_end_offset=NUMBERS,
    lineage=LINEAGES,
    segments=st.lists(SEGMENTS, max_size=5, unique_by=lambda each: each.segment_id).map(
        lambda found: tuple(sorted(found, key=lambda each: (each.base_offset, each.segment_id)))
    ),
)


@settings(max_examples=100)
@given(MANIFESTS)
def test_it_says_what_was_written(manifest: Manifest) -> None:
    assert read_manifest(manifest.name, write_manifest(manifest)) == manifest


@settings(max_examples=200)
@given(MANIFESTS, st.data())
def test_no_changed_bit_and_no_cut_end_goes_unnoticed(manifest: Manifest, data: st.DataObject) -> None:
    written = bytearray(write_manifest(manifest))
    if data.draw(st.booleans()):
        del written[data.draw(st.integers(0, len(written) - 1)) :]
    else:
        bit = data.draw(st.integers(0, 8 * len(written) - 1))
        written[bit // 8] ^= 1 << bit % 8
    try:
        found = read_manifest(manifest.name, bytes(written))
    except DamagedObjectError:
        return
    # In the first line a letter's case or a name's quotes may change and mean the same.
    assert found == manifest


def test_one_of_another_name_or_version_is_refused() -> None:
    owner = TieredPartition(Uuid(bytes(16)), PartitionIndex(0))
    manifest = Manifest("c", "orders", owner, ManifestVersion(0, 1, 2, 3), 5, 1, {}, 0, 0, (), ())
    data = write_manifest(manifest)
    with pytest.raises(DamagedObjectError, match="holds another manifest"):
        read_manifest(manifest.name.replace("orders", "others"), data)
    head, _, body = data.partition(b"\n")
    newer = json.dumps(json.loads(head) | {"manifest": 2}).encode() + b"\n" + body
    with pytest.raises(DamagedObjectError, match="version 2 of the format"):
        read_manifest(manifest.name, newer)
    with pytest.raises(DamagedObjectError, match="no manifest"):
        read_manifest(manifest.name, b"<html>")
