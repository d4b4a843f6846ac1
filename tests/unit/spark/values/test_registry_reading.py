"""Columns read by a registry that refuses or is away: only what the registry has said makes a record bad."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.real.registry.client import RegistryAddress
from tailrace.schemas.framing import write_prefix
from tailrace.spark.options.errors import OptionError
from tailrace.spark.values.avro_values import AvroFormat
from tailrace.spark.values.registry.reading import RegistryAvroFormat, RegistryAwayError
from tailrace.spark.values.registry.settings import parse_address
from tests.registry_stand_in import stand_in

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


def test_records_wait_for_a_registry_that_is_away():
    with stand_in() as registry:
        registry.register("orders-value", ORDER)
        address = RegistryAddress(registry.url, patience_s=0.0)
        plan = RegistryAvroFormat(address, AvroFormat.parse(ORDER, has_confluent_prefix=False))
        column = pa.array([write_prefix(1) + b"\x0e", b"plain", write_prefix(9)])
        registry.failing = True
        decoder = plan.decoder()
        with pytest.raises(RegistryAwayError, match="answers 503"):
            decoder.decode(column)
        registry.failing = False
        found = decoder.decode(column)
        assert found.column.to_pylist() == [{"id": 7}, None, None]
        assert sorted(found.bad) == [1, 2]
        registry.user_info = "Basic somebody else"
        with pytest.raises(RegistryAwayError, match="answers 401"):
            replace(plan, address=replace(address, patience_s=60.0)).decoder().decode(column)


def test_how_long_tasks_wait():
    options = {"schemaregistryurl": "http://127.0.0.1:8081"}
    assert parse_address(options).patience_s == 30
    assert parse_address(options | {"schemaregistrypatiencems": "500"}).patience_s == 0.5
    for wrong in (options | {"schemaregistrypatiencems": "soon"}, {"schemaregistrypatiencems": "5"}):
        with pytest.raises(OptionError, match="schemaRegistry"):
            parse_address(wrong)
