"""Messages survive the way over the wire, in every version that can carry them."""

import pytest

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, ProtocolError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.raft.messages import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Fetch,
    Fetched,
    RemoveVoter,
    Reply,
    Request,
    UpdateVoter,
    Vote,
)
from tailrace.raft.translation import (
    of_wire_request,
    of_wire_response,
    refuse,
    to_wire_request,
    to_wire_response,
)
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter
from tailrace.wire.apis import response_type
from tailrace.wire.apis.data import FetchResponse
from tailrace.wire.apis.quorum import VoteRequest, VoteResponse
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Message

ONE, TWO = ReplicaKey(1, Uuid(b"1" * 16)), ReplicaKey(2, Uuid(b"2" * 16))
ENDPOINT = Endpoint("CONTROLLER", "host", 9093)
REQUESTS: list[Request] = [
    Vote(7, ONE, TWO, OffsetAndEpoch(40, 6), is_pre_vote=True),
    BeginEpoch(7, 1, TWO, (ENDPOINT,)),
    EndEpoch(7, 1, (TWO, ONE), (ENDPOINT,)),
    Fetch(7, ONE, 40, 6, 38),
    AddVoter(Voter(ONE, (ENDPOINT,)), 1000, ack_when_committed=False),
    RemoveVoter(ONE),
    UpdateVoter(7, Voter(ONE, (ENDPOINT,))),
]
LEADER = Reply(7, 1, Endpoint("", "host", 9093))


def through_bytes(message: Message, version: int | None = None) -> Message:
    version = message.versions[-1] if version is None else version
    return decode(type(message), version, bytes(encode(message, version)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_requests_come_back(request_: Request) -> None:
    message = through_bytes(to_wire_request(request_, cluster_id="c", max_wait_ms=500))
    assert of_wire_request(message, own_id=2) == request_


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_replies_come_back(request_: Request) -> None:
    message = to_wire_request(request_, cluster_id="c", max_wait_ms=500)
    for error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        response = through_bytes(to_wire_response(message, LEADER._replace(error=error)))
        assert isinstance(response, response_type(message.api_key))
        reply = of_wire_response(response)
        assert reply.error is error
        if not isinstance(request_, AddVoter | RemoveVoter):
            assert (reply.epoch, reply.leader_id, reply.endpoint) == (7, 1, LEADER.endpoint)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_refusal_of_the_whole_tells_nothing_of_epochs(request_: Request) -> None:
    message = to_wire_request(request_, cluster_id="c", max_wait_ms=500)
    reply = of_wire_response(through_bytes(refuse(message, ErrorCode.KAFKA_STORAGE_ERROR)))
    assert (reply.error, reply.leader_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert reply.epoch == -1


def test_a_vote_is_told() -> None:
    message = to_wire_request(REQUESTS[0], cluster_id="c", max_wait_ms=500)
    reply = of_wire_response(through_bytes(to_wire_response(message, LEADER._replace(is_granted=True))))
    assert reply.is_granted


def test_a_vote_of_version_0_names_no_directories_and_is_for_whoever_gets_it() -> None:
    message = through_bytes(to_wire_request(REQUESTS[0], cluster_id="c", max_wait_ms=500), version=0)
    assert isinstance(message, VoteRequest)
    assert of_wire_request(message, own_id=2) == Vote(
        7, ReplicaKey(1, ZERO_UUID), ReplicaKey(2, ZERO_UUID), OffsetAndEpoch(40, 6), is_pre_vote=False
    )


@pytest.mark.parametrize(
    "fetched",
    [
        Fetched(5, records=b"batches"),
        Fetched(5, diverging=OffsetAndEpoch(0, 3)),
        Fetched(5, snapshot=OffsetAndEpoch(0, 0)),
    ],
)
def test_what_was_fetched_comes_back(fetched: Fetched) -> None:
    message = to_wire_request(REQUESTS[3], cluster_id="c", max_wait_ms=500)
    response = through_bytes(to_wire_response(message, LEADER._replace(fetched=fetched)))
    got = of_wire_response(response).fetched
    assert got is not None
    assert got._replace(records=bytes(got.records)) == fetched  # type: ignore[arg-type]


def test_an_error_of_a_newer_version_is_an_error() -> None:
    assert of_wire_response(VoteResponse(error_code=32_000)).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_answer_about_something_else_is_refused() -> None:
    with pytest.raises(ProtocolError):
        of_wire_response(FetchResponse())


def test_a_request_about_another_partition_has_no_translation() -> None:
    message = to_wire_request(REQUESTS[0], cluster_id="c", max_wait_ms=500)
    assert isinstance(message, VoteRequest)
    message.topics[0].partitions[0].partition_index = 1
    assert of_wire_request(message, own_id=2) is None
    message.topics = []
    assert of_wire_request(message, own_id=2) is None
