"""Random requests, sound and damaged, to every API in every version: each is answered or its connection closed; the
broker stays, logs no bug, and serves the others meanwhile."""

import socket
from contextlib import closing

import pytest

from tailrace.testing import Broker
from tailrace.wire.apis import api_name
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.frame import decode_response, encode_request
from tests.real.hostile.messages import SERVED, Messages
from tests.real.raw import METADATA, PRODUCE, RawClient

ROUNDS = 25

pytestmark = pytest.mark.usefixtures("healthy")


@pytest.fixture
def topic_ids(broker: Broker) -> list[bytes]:
    """The ids of topics that requests may name; some requests will delete them."""
    with RawClient(broker.bootstrap) as client:
        for name in ("fuzz-0", "fuzz-1"):
            client.create_topic(name, partitions=3)
        client.send(b"".join(map(bytes, encode_request(METADATA, 12, 1, None, MetadataRequest(topics=None)))))
        topics = decode_response(METADATA, 12, client.receive())[1].topics
        # Without that of the healthy client: whoever knows its id may delete it.
        return [topic.topic_id for topic in topics if topic.name != "healthy"]


def test_every_sound_request_is_answered(broker: Broker, topic_ids: list[bytes]):
    messages = Messages(20261115, topic_ids)
    for api_key, version in SERVED * ROUNDS:
        request = messages.request(api_key, version)
        with RawClient(broker.bootstrap) as client:
            client.send(messages.frame(request, version, 77))
            if api_key == PRODUCE and request.acks == 0:
                client.socket.shutdown(socket.SHUT_WR)
                assert client.is_closed_by_broker()
                continue
            try:
                correlation_id, _response = decode_response(api_key, version, client.receive())
            except AssertionError:
                pytest.fail(f"{api_name(api_key)} {version} was not answered: {request!r}")
            assert correlation_id == 77


def test_damaged_requests_are_answered_or_close_their_connection(broker: Broker, topic_ids: list[bytes]):
    messages = Messages(4711, topic_ids)
    for api_key, version in SERVED * ROUNDS:
        frame = messages.frame(messages.request(api_key, version), version, 77)
        with RawClient(broker.bootstrap) as client:
            client.send(messages.damaged(frame))
            client.socket.shutdown(socket.SHUT_WR)
            _drain(client.socket)


def test_one_connection_that_sends_everything_at_once(broker: Broker, topic_ids: list[bytes]):
    """Answers come in the order of their requests, whatever these are."""
    messages = Messages(99, topic_ids)
    sent = []
    with RawClient(broker.bootstrap) as client:
        for number, (api_key, version) in enumerate(SERVED):
            request = messages.request(api_key, version)
            if api_key == PRODUCE and request.acks == 0:  # No answer, and its error ends the connection.
                continue
            client.send(messages.frame(request, version, number))
            sent.append((number, api_key, version))
        for number, api_key, version in sent:
            assert decode_response(api_key, version, client.receive())[0] == number


def _drain(connection: socket.socket) -> None:
    with closing(connection):
        try:
            while connection.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
