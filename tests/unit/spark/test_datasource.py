"""What is asked of format("tailrace") before anything is read."""

import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_tailrace import DefaultSource
from tailrace.spark.options.errors import OptionError

NEEDED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict(NEEDED | options))


def test_spark_finds_it_by_its_name():
    assert DefaultSource.name() == "tailrace"


def test_the_schema_is_that_of_sparks_own_connector():
    assert source(includeHeaders="true").schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert source(columns="value,offset").schema().simpleString() == "struct<value:binary,offset:bigint>"
    decoded = source(**{"value.format": "json", "value.schema": "a int", "columns": "value"})
    assert decoded.schema().simpleString() == "struct<value:struct<a:int>>"


def test_another_schema_cannot_be_demanded():
    with pytest.raises(OptionError, match=r"the schema cannot be chosen: .* use the option columns"):
        source().reader(source(columns="value").schema())
    with pytest.raises(OptionError, match="the schema cannot be chosen"):
        source().streamReader(source(columns="value").schema()).initialOffset()


def test_a_stream_that_cannot_be_says_so_when_it_is_asked_and_not_before():
    """Spark stops the reader of a stream in any case, and fails on its own account if it could not be made."""
    for options, message in (
        ({"table": "topics"}, "a system table is not a stream"),
        ({"startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
    ):
        found = source(**options)
        stream = found.streamReader(found.schema())
        for ask in (
            stream.initialOffset,
            lambda stream=stream: stream.latestOffset({}, stream.getDefaultReadLimit()),
            lambda stream=stream: stream.partitions({}, {}),
        ):
            with pytest.raises(OptionError, match=message):
                ask()
        stream.stop()


def test_create_table_is_refused_where_it_would_fail_later():
    with pytest.raises(OptionError, match="use CREATE TEMPORARY VIEW"):
        source(provider="tailrace").schema()


def test_a_plain_stream_loads_no_more_than_it_needs():
    """Spark starts several processes for a query, and each pays for what it imports."""
    script = """
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_tailrace import DefaultSource
source = DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}))
source.streamReader(source.schema())
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tailrace.spark.source.stream" in loaded
    needless = (
        "tailrace.kit",
        "tailrace.schemas",
        "tailrace.client.groups",
        "tailrace.spark.values",
        "tailrace.spark.tier",
    )
    assert [name for name in loaded if name.startswith(needless)] == []
