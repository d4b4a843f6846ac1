"""The steps on the way of a request, as a row of the catalogue names them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import catalogue
from tailrace.broker.context import RequestContext
from tailrace.broker.services import Services
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.apis.keys import ApiKey

from .world import batch, create_topic, produce, produced, running

HERE = __name__


def allow_public(_services: Services, context: RequestContext, request: Any) -> Any:
    """Takes out what the client may not see, and puts its answers back."""
    refused = [topic for topic in request.topics if topic.name.startswith("secret")]
    request.topics = [topic for topic in request.topics if topic not in refused]

    def join(answer: Any) -> Any:
        result, partition = ListOffsetsResponse.ListOffsetsTopicResponse, ListOffsetsResponse
        answer.topics += [
            result(
                name=topic.name,
                partitions=[
                    partition.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                    for each in topic.partitions
                ],
            )
            for topic in refused
        ]
        return answer

    context.joins = (*context.joins, join)
    return request


def admit_nobody(_services: Services, _context: RequestContext, _request: Any) -> Any:
    raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "later")


def charge(_services: Services, _context: RequestContext, answer: Any) -> Any:
    answer.throttle_time_ms = 17
    return answer


def plant(monkeypatch: pytest.MonkeyPatch, key: ApiKey, **steps: tuple[str, ...]) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, key, catalogue.CATALOGUE[key]._replace(**steps))


def asked(*names: str) -> ListOffsetsRequest:
    topic, partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[topic(name=name, partitions=[partition(partition_index=0, timestamp=-1)]) for name in names],
    )


async def test_a_step_takes_out_what_is_refused_and_its_answers_are_joined(monkeypatch):
    plant(monkeypatch, ApiKey.LIST_OFFSETS, before=(f"{HERE}.allow_public",), after=(f"{HERE}.charge",))
    async with running() as world:
        peer = await world.connect()
        for name in ("public", "secret"):
            await create_topic(peer, name)
        answer = await peer.request(asked("secret", "public"), 7)
        told = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        assert told == {"public": ErrorCode.NONE, "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert answer.throttle_time_ms == 17


async def test_a_step_refuses_the_whole_in_the_form_of_its_api(monkeypatch):
    plant(monkeypatch, ApiKey.LIST_OFFSETS, before=(f"{HERE}.admit_nobody",))
    async with running() as world:
        peer = await world.connect()
        answer = await peer.request(asked("a", "b"), 7)
        assert [topic.partitions[0].error_code for topic in answer.topics] == [89, 89]


async def test_an_answer_that_was_waited_for_is_charged_too(monkeypatch):
    plant(monkeypatch, ApiKey.PRODUCE, after=(f"{HERE}.charge",))
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for _ in range(3):  # The second would go the short way, which leaves steps out.
            answer = await peer.request(produce("t", batch(b"a")), 9)
            assert produced(answer).error_code == ErrorCode.NONE
            assert answer.throttle_time_ms == 17


async def test_lanes_are_learned_anew_once_their_number_is_raised():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for _ in range(3):
            await peer.request(produce("t", batch(b"a")), 9)
        express = next(iter(world.broker.acceptors[0].connections))._express
        (before,) = express._lanes.values()
        world.broker.services.lanes.raise_number()
        await peer.request(produce("t", batch(b"a")), 9)
        (after,) = express._lanes.values()
        assert after is not before
