"""What a client is told of a change that this broker has asked for twice.

While the controller moves, a broker hands a client's request on again, and the first try may have been done: then the
second is refused, because it is so already. The client asked once, and must hear that it was done. The rule:

    a refusal "it is so already" is a success, if the request was sent more than once, it was not so in this broker's
    metadata when the request came, and it is now just what was asked for

So nobody hears of a success without having what they asked for. What the rule cannot tell apart is another client who
made the same change in the same moment: both are told that it was done. For all changes but the creation of a topic
that is what they would be told anyway, one after the other.

Settings, features and reassignments may be set twice, and tokens made twice: nobody is told of the first one, and it
expires. An election that is not needed any more, and a reassignment that cannot be cancelled any more, say so: that is
no failure of what was asked for.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis import admin, quorum, security

if TYPE_CHECKING:
    from tailrace.broker.services import Services
    from tailrace.controller.image import MetadataImage, TopicImage
    from tailrace.raft.types import VoterSet
    from tailrace.wire.schema import Message

# How long this broker may take to hear what the controller has said is so.
_LOOK_SECONDS = 0.01
_LOOKS_MAX = 100


class Before:
    """What this broker knew when the request came."""

    def __init__(self, services: Services) -> None:
        self.image: MetadataImage = services.image
        self.voters: VoterSet = services.quorum.driver.voters


async def settle_resent(services: Services, before: Before, request: Message, answer: Message) -> Message:
    """The answer to a request that was sent more than once, as the client is to see it."""
    settle = _RULES.get(type(request))
    if settle is not None:
        for _ in range(_LOOKS_MAX):
            if settle(services, before, request, answer):
                break
            await sleep(_LOOK_SECONDS)
    return answer


# Each rule changes the answer, and gives whether all that it may have to change is known here.
def _settle_creation(
    services: Services, before: Before, request: admin.CreateTopicsRequest, answer: admin.CreateTopicsResponse
) -> bool:
    asked = {topic.name: topic for topic in request.topics}
    is_known = True
    for result in answer.topics:
        if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS or result.name in before.image.topics:
            continue
        topic = services.image.topics.get(result.name)
        is_known &= topic is not None
        if topic is not None and not request.validate_only and _is_as_asked(services, topic, asked[result.name]):
            _tell_created(services, topic, result)
    return is_known


def _is_as_asked(services: Services, topic: TopicImage, asked: admin.CreateTopicsRequest.CreatableTopic) -> bool:
    config, factor = services.config, len(topic.partitions[0].replicas)
    settings = {each.name: each.value for each in asked.configs}
    if services.image.config(ResourceType.TOPIC, topic.name) != settings:
        return False
    if asked.assignments:
        replicas = {each.partition_index: tuple(each.broker_ids) for each in asked.assignments}
        return replicas == {index: partition.replicas for index, partition in topic.partitions.items()}
    count_asked = config.num_partitions if asked.num_partitions == -1 else asked.num_partitions
    factor_asked = config.default_replication_factor if asked.replication_factor == -1 else asked.replication_factor
    return (len(topic.partitions), factor) == (count_asked, factor_asked)


def _tell_created(
    services: Services, topic: TopicImage, result: admin.CreateTopicsResponse.CreatableTopicResult
) -> None:
    from tailrace.controller.effective import broker_layers, topic_config, topic_entries

    overrides = services.image.config(ResourceType.TOPIC, topic.name)
    layers = broker_layers(services.quorum.static_config, services.image)
    entries = topic_entries(topic_config(services.config, services.image, topic.name), overrides, layers)
    result.error_code, result.error_message = 0, None
    result.topic_id = topic.id
    result.num_partitions, result.replication_factor = len(topic.partitions), len(topic.partitions[0].replicas)
    result.configs = [
        admin.CreateTopicsResponse.CreatableTopicConfigs(name=each.name, value=each.value, config_source=each.source)
        for each in entries
    ]


def _settle_deletion(
    services: Services, before: Before, _request: admin.DeleteTopicsRequest, answer: admin.DeleteTopicsResponse
) -> bool:
    is_known = True
    for result in answer.responses:
        if result.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            continue
        if result.name is not None:
            topic = before.image.topics.get(result.name)
        else:
            topic = before.image.topic_by_id(Uuid(result.topic_id))
        if topic is None:
            continue
        if services.image.topic_by_id(topic.id) is not None:
            is_known = False
            continue
        result.error_code, result.error_message = 0, None
        result.name, result.topic_id = topic.name, topic.id
    return is_known


def _settle_partitions(
    services: Services, before: Before, request: admin.CreatePartitionsRequest, answer: admin.CreatePartitionsResponse
) -> bool:
    counts = {topic.name: topic.count for topic in request.topics}
    is_known = True
    for result in answer.results:
        old, new = before.image.topics.get(result.name), services.image.topics.get(result.name)
        if result.error_code != ErrorCode.INVALID_PARTITIONS or old is None or new is None:
            continue
        if request.validate_only or old.id != new.id or len(old.partitions) >= counts[result.name]:
            continue
        if len(new.partitions) == counts[result.name]:
            result.error_code, result.error_message = 0, None
        else:
            is_known &= len(new.partitions) > len(old.partitions)
    return is_known


def _settle_unregistration(
    services: Services,
    before: Before,
    request: admin.UnregisterBrokerRequest,
    answer: admin.UnregisterBrokerResponse,
) -> bool:
    node_id = NodeId(request.broker_id)
    if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED or node_id not in before.image.brokers:
        return True
    if node_id not in services.image.brokers:
        answer.error_code, answer.error_message = 0, None
    return not answer.error_code


def _settle_token_end(
    services: Services,
    before: Before,
    request: security.ExpireDelegationTokenRequest,
    answer: security.ExpireDelegationTokenResponse,
) -> bool:
    from tailrace.controller.security.token_keys import TokenKeys

    secret_key = services.quorum.static_config.delegation_token_secret_key
    if answer.error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND or not secret_key:
        return True
    token = TokenKeys(secret_key).find(before.image.delegation_tokens, request.hmac)
    if token is None:
        return True
    if token.id not in services.image.delegation_tokens:
        answer.error_code, answer.expiry_timestamp_ms = 0, services.ports.clock.wall_ms()
    return not answer.error_code


def _settle_new_voter(
    services: Services, before: Before, request: quorum.AddRaftVoterRequest, answer: quorum.AddRaftVoterResponse
) -> bool:
    key = request.voter_id, request.voter_directory_id
    if answer.error_code != ErrorCode.DUPLICATE_VOTER or key in _keys(before.voters):
        return True
    if key in _keys(services.quorum.driver.voters):
        answer.error_code, answer.error_message = 0, None
    return not answer.error_code


def _settle_old_voter(
    services: Services, before: Before, request: quorum.RemoveRaftVoterRequest, answer: quorum.RemoveRaftVoterResponse
) -> bool:
    key = request.voter_id, request.voter_directory_id
    if answer.error_code != ErrorCode.VOTER_NOT_FOUND or key not in _keys(before.voters):
        return True
    if key not in _keys(services.quorum.driver.voters):
        answer.error_code, answer.error_message = 0, None
    return not answer.error_code


def _keys(voters: VoterSet) -> set[tuple[int, bytes]]:
    return {(voter.key.id, voter.key.directory_id) for voter in voters}


_RULES: dict[type[Message], Callable[[Services, Before, Any, Any], bool]] = {
    admin.CreateTopicsRequest: _settle_creation,
    admin.DeleteTopicsRequest: _settle_deletion,
    admin.CreatePartitionsRequest: _settle_partitions,
    admin.UnregisterBrokerRequest: _settle_unregistration,
    security.ExpireDelegationTokenRequest: _settle_token_end,
    quorum.AddRaftVoterRequest: _settle_new_voter,
    quorum.RemoveRaftVoterRequest: _settle_old_voter,
}
