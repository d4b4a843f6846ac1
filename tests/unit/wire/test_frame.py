"""Headers and sizes around a body, and the two exceptions for ApiVersions."""

import pytest

from tailrace.model.errors import ProtocolError
from tailrace.model.ports import FileSlice
from tailrace.sim.disk import SimDisk
from tailrace.wire import apis
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse, FetchResponse, MetadataResponse
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import encode
from tailrace.wire.frame import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (1, 11, 1, 0),
        (1, 12, 2, 1),
        (17, 1, 1, 0),  # SaslHandshake never became flexible
        (47, 0, 1, 0),  # nor did OffsetDelete
        (58, 0, 2, 1),  # Envelope always was
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (18, 99, 2, 0),
    ],
)
def test_header_versions(api_key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(api_key, version) == request_header
    assert response_header_version(api_key, version) == response_header


def test_a_request_has_its_size_and_header_in_front() -> None:
    (frame,) = encode_request(18, 3, 9, "me", ApiVersionsRequest(client_software_name="x"))
    assert frame.hex(" ") == "00 00 00 11 00 12 00 03 00 00 00 09 00 02 6d 65 00 02 78 01 00"
    header, position = decode_request_header(frame, 4)
    assert header == RequestHeader(request_api_key=18, request_api_version=3, correlation_id=9, client_id="me")
    assert position == 17


def test_the_client_id_may_be_null() -> None:
    (frame,) = encode_request(18, 0, 1, None, ApiVersionsRequest())
    header, position = decode_request_header(memoryview(frame), 4)
    assert header.client_id is None
    assert position == len(frame)


def test_a_response_has_its_size_and_header_in_front() -> None:
    (frame,) = encode_response(3, 9, 5, MetadataResponse(cluster_id="c"))
    assert frame[:9].hex(" ") == "00 00 00 16 00 00 00 05 00"
    assert len(frame) == 4 + 0x16
    assert decode_response(3, 9, frame, 4) == (5, MetadataResponse(cluster_id="c"))


def test_the_header_of_an_api_versions_response_has_no_tags() -> None:
    response = ApiVersionsResponse(error_code=35)
    (frame,) = encode_response(18, 4, 5, response)
    assert frame == len(frame[4:]).to_bytes(4, "big") + b"\x00\x00\x00\x05" + encode(response, 4)


def test_the_size_counts_what_is_sent_from_files() -> None:
    file = SimDisk().open("segment", create=True)
    file.append([bytes(100)])
    partition = FetchResponse.PartitionData(records=FileSlice(file, 10, 90))
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    parts = encode_response(1, 12, 5, FetchResponse(responses=[topic]))
    assert len(parts) == 3
    assert int.from_bytes(parts[0][:4], "big") == sum(len(part) for part in parts) - 4


@pytest.mark.parametrize("data", ["", "0000", "000000", "0000 0009 00000001", "0000 0009 00000001 0005 6d65"])
def test_a_header_that_is_cut_short(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes.fromhex(data), 0)


@pytest.mark.parametrize("api_key", [-1, 4, 7, 93, 94, 0x4745])
def test_an_api_that_is_not_declared(api_key: int) -> None:
    with pytest.raises(ProtocolError, match=f"API key {api_key}"):
        decode_request_header(api_key.to_bytes(2, "big", signed=True) + bytes(20), 0)
    with pytest.raises(ProtocolError):
        decode_response(api_key, 0, bytes(20))
    with pytest.raises(KeyError):
        apis.request_type(api_key)


def test_every_key_has_a_request_and_a_response() -> None:
    for key in ApiKey:
        request, response = apis.request_type(key), apis.response_type(key)
        assert request.api_key == response.api_key == key
        assert (request.versions, request.flexible) == (response.versions, response.flexible)
        assert request.__name__ == apis.api_name(key) + "Request"
    assert apis.api_name(4) == "api4"
