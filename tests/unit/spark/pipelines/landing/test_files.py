"""Files of a batch: which rows are in which, and what is told of them."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.spark.pipelines.landing import files
from tailrace.spark.pipelines.landing.files import FileWriter


@dataclass(frozen=True)
class LocalFolder:
    path: str

    def create(self, name):
        return f"{self.path}/{name}", open(f"{self.path}/{name}", "wb")


def rows(start, end):
    numbers = range(start, end)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"t{n}" if n % 5 else None for n in numbers],
            "at": pa.array(
                [datetime(2026, 1, 1, 0, 0, n % 60, 7, tzinfo=UTC) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "day": [date(2026, 1, 1 + n % 3) for n in numbers],
            "kind": [None if n % 2 else "even" for n in numbers],
        }
    )


def test_each_partition_has_its_own_file(tmp_path):
    writer = FileWriter(LocalFolder(str(tmp_path)), ("day", "kind"))
    written = list(writer.write(iter([rows(0, 10), rows(10, 10), rows(10, 30)])))
    assert len({file.path for file in written}) == len(written) == 6
    found = {}
    for file in written:
        table = pq.read_table(file.path)
        assert table.column_names == ["id", "text", "at"]
        assert file.rows == table.num_rows
        assert file.size_bytes == (tmp_path / file.path).stat().st_size
        found[file.partition["day"], file.partition["kind"]] = table["id"].to_pylist()
    assert found == {
        (f"2026-01-0{1 + day}", None if odd else "even"): [n for n in range(30) if n % 3 == day and n % 2 == odd]
        for day in range(3)
        for odd in range(2)
    }


def test_statistics_hold_for_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BUFFERED_BYTES_MAX", 1)  # Every batch becomes a row group.
    (file,) = FileWriter(LocalFolder(str(tmp_path))).write(iter([rows(10, 20), rows(0, 7)]))
    assert pq.ParquetFile(file.path).num_row_groups == 2
    assert json.loads(file.statistics) == {
        "numRecords": 17,
        "minValues": {"id": 0, "text": "t1", "at": "2026-01-01T00:00:00.000007Z", "day": "2026-01-01", "kind": "even"},
        "maxValues": {"id": 19, "text": "t6", "at": "2026-01-01T00:00:19.000007Z", "day": "2026-01-03", "kind": "even"},
        "nullCount": {"id": 0, "text": 4, "at": 0, "day": 0, "kind": 8},
    }


def test_no_bounds_where_they_would_be_wrong_or_long(tmp_path):
    batch = pa.RecordBatch.from_pydict(
        {"long": ["x" * 1000], "none": pa.array([None], pa.string()), "ratio": [float("nan")], "deep": [{"a": 1}]}
    )
    (file,) = FileWriter(LocalFolder(str(tmp_path))).write(iter([batch]))
    statistics = json.loads(file.statistics)
    assert statistics["minValues"] == statistics["maxValues"] == {}
    assert statistics["nullCount"] == {"long": 0, "none": 1, "ratio": 0}


def test_open_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 2)
    writer = FileWriter(LocalFolder(str(tmp_path)), ("day",))
    batches = [rows(n, n + 1) for n in range(9)]
    written = list(writer.write(iter(batches)))
    assert len(written) > 3
    assert sorted(n for file in written for n in pq.read_table(file.path)["id"].to_pylist()) == list(range(9))


@pytest.mark.parametrize("batches", [[], [rows(0, 0)]])
def test_no_rows_no_files(tmp_path, batches):
    assert list(FileWriter(LocalFolder(str(tmp_path))).write(iter(batches))) == []
    assert list(tmp_path.iterdir()) == []
