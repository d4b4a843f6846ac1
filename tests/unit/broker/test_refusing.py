"""Every API that is served can be refused as a whole, in each of its versions, where its clients look for the code."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.broker.context import UnanswerableError
from tailrace.broker.failures import refuse
from tailrace.catalogue import CATALOGUE, Api
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire import apis
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Field, Struct

REFUSED = KafkaError(ErrorCode.POLICY_VIOLATION, "not today")


def filled(struct: type[Struct], version: int) -> Any:
    """With one item in each array."""
    made: Any = struct()
    if hasattr(made, "acks"):
        made.acks = 1
    for field in struct.fields:
        if version in field.versions and field.kind in ("array", "string", "struct"):
            setattr(made, field.name, value_of(field, version))
    return made


def value_of(field: Field, version: int) -> Any:
    if field.kind == "string":
        return "x"
    item = filled(field.struct, version) if field.struct is not None else {"string": "x"}.get(field.item, 7)
    return [item] if field.kind == "array" else item


def codes(message: Any) -> list[int]:
    """All error codes in it."""
    found = []
    for field in message.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        elif field.struct is not None and value is not None:
            found += [code for each in (value if field.kind == "array" else [value]) for code in codes(each)]
    return found


def versions_of(api: Api) -> range:
    served = [each for each in (api.for_clients, api.for_controllers) if each is not None]
    return range(min(each.version_min for each in served), max(each.version_max for each in served) + 1)


@pytest.mark.parametrize("api", CATALOGUE.values(), ids=lambda api: api.key.name)
def test_each_version_tells_the_code(api: Api) -> None:
    for version in versions_of(api):
        request = filled(apis.request_type(api.key), version)
        response = refuse(request, version, REFUSED)
        told = decode(apis.response_type(api.key), version, bytes(encode(response, version)))
        if api.key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
            continue  # It lists no folder, and has no other place.
        assert ErrorCode.POLICY_VIOLATION in codes(told), f"version {version}: {told}"
        assert set(codes(told)) <= {ErrorCode.POLICY_VIOLATION, ErrorCode.NONE}


def test_who_asked_for_no_answer_gets_none() -> None:
    request = filled(apis.request_type(ApiKey.PRODUCE), 9)
    request.acks = 0
    with pytest.raises(UnanswerableError):
        refuse(request, 9, REFUSED)


def test_every_api_names_a_form_and_a_handler_that_exist() -> None:
    for api in CATALOGUE.values():
        for served in (api.for_clients, api.for_controllers):
            if served is not None:
                from tailrace.catalogue import load_handler

                assert callable(load_handler(served))
