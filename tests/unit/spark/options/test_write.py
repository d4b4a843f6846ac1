"""What a query writes, by its options."""

import pytest

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.exactly_once import writers

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}


def test_a_name_does_not_make_a_write_exactly_once():
    with pytest.raises(OptionError, match="exactlyOnceId says nothing without exactlyOnce=true"):
        WriteOptions.parse({**OPTIONS, "exactlyonceid": "orders-of-today"})


def test_a_stream_takes_no_other_name():
    options = WriteOptions.parse({**OPTIONS, "exactlyonce": "true", "exactlyonceid": "orders-of-today"})
    with pytest.raises(OptionError, match="a stream is known by the id in its checkpoint"):
        writers.stream_writer(options)
    assert writers.batch_writer(options) is not None
