"""Changing settings: IncrementalAlterConfigs (SET, DELETE, APPEND, SUBTRACT) and AlterConfigs, which replaces all
settings of a resource by those of the request.

Resources are a topic, a group, a subscription to clients' metrics, a broker by its number, or with an empty name all
brokers. One resource succeeds or fails as a whole, independent of the others. What is stored is the text as it came; it
was checked to parse, to be in range and to fit the resource's other settings. Broker settings that are read at the
start alone are refused. Names that mean nothing to a broker are kept, as in Kafka, where they are for plugins; but not
those of security: a name that is written wrong must not leave a secret in the metadata, and somebody safe by belief.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TypeAlias, TypeVar

from tailrace.controller.brokers import queues, remote_storage
from tailrace.controller.features import MIN_INSYNC_REPLICAS, keeps_eligible_leader_replicas
from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.controller.names import check_topic_name
from tailrace.controller.partitions.change import decide_without_eligible
from tailrace.controller.partitions.elections import decide_unclean_elections
from tailrace.controller.telemetry.subscriptions import CLIENT_METRICS_SETTINGS, parse_subscription
from tailrace.controller.view import Result, View
from tailrace.model.config import (
    GROUP_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    apply_group,
    check_turned_off,
    format_value,
    parse_group_config,
    parse_topic_config,
    refused_broker_setting,
    unknown_broker_setting,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.listeners import PREFIX, find_setting, is_store_setting
from tailrace.model.security_settings import STORE_SETTINGS
from tailrace.model.settings import Kind, Setting, parse_value
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.stored_records import ConfigRecord, PartitionChangeRecord
from tailrace.wire.schema import Message


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_Resource: TypeAlias = AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource
_Error: TypeAlias = KafkaError | None
# An unknown name that has one of these was probably written wrong, and its value is perhaps a secret.
_WORDS_OF_SECURITY = (PREFIX, "sasl.", "ssl.", "password", "secret", "jaas")
# The two responses have the same form.
_Response = TypeVar("_Response", AlterConfigsResponse, IncrementalAlterConfigsResponse)


def incremental_alter_configs(view: View, request: IncrementalAlterConfigsRequest) -> Result:
    records, errors = _alter(view, request.resources, partial(new_texts, view.image))
    response = alter_response(IncrementalAlterConfigsResponse, request.resources, errors)
    return Result([] if request.validate_only else records, response)


def alter_configs(view: View, request: AlterConfigsRequest) -> Result:
    records, errors = _alter(view, request.resources, partial(new_texts, view.image))
    response = alter_response(AlterConfigsResponse, request.resources, errors)
    return Result([] if request.validate_only else records, response)


def new_texts(image: MetadataImage, resource: _Resource) -> dict[str, str]:
    """The settings that a resource would have. Raises KafkaError."""
    if isinstance(resource, AlterConfigsRequest.AlterConfigsResource):
        return {config.name: config.value or "" for config in resource.configs}
    texts = dict(image.config(resource.resource_type, resource.resource_name))
    for config in resource.configs:
        _apply_operation(texts, _settings_of(resource.resource_type), config)
    return texts


def is_store(name: str) -> bool:
    """Whether a broker's setting says where certificates come from, for all its listeners or one."""
    return name in STORE_SETTINGS or is_store_setting(name)


def alter_response(
    response_type: type[_Response], resources: Sequence[_Resource], errors: Sequence[KafkaError | None]
) -> _Response:
    """One answer for each resource, in their order."""
    return response_type(
        responses=[
            response_type.AlterConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(resources, errors, strict=True)
        ]
    )


def _alter(
    view: View, resources: Sequence[_Resource], texts_of: Callable[[_Resource], dict[str, str]]
) -> tuple[list[Message], list[_Error]]:
    """The records of all resources that may be changed, and the error of each one that may not."""
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    records: list[Message] = []
    errors: list[_Error] = []
    for resource in resources:
        try:
            if times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_keys(resource)
            _check_resource_name(view, resource)
            texts = texts_of(resource)
            records += _decide_records(view, resource, texts)
            errors.append(None)
        except KafkaError as error:
            errors.append(error)
    return records, errors


def _check_keys(resource: _Resource) -> None:
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", Operation.SET) != Operation.DELETE
    ]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


def _check_resource_name(view: View, resource: _Resource) -> None:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        if name not in view.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource.resource_type == ResourceType.BROKER:
        if name and not name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if name and name not in map(str, view.image.brokers):
            known = " or ".join(map(str, sorted(view.image.brokers)))
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {known}, but received {name}")
    elif resource.resource_type == ResourceType.GROUP:
        # It need not exist: a group may be given its settings before its first member comes.
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _settings_of(resource_type: int) -> Mapping[str, Setting]:
    match resource_type:
        case ResourceType.TOPIC:
            return TOPIC_SETTINGS
        case ResourceType.GROUP:
            return GROUP_SETTINGS
        case ResourceType.CLIENT_METRICS:
            return CLIENT_METRICS_SETTINGS
        case _:
            return SETTINGS


def _apply_operation(
    texts: dict[str, str],
    settings: Mapping[str, Setting],
    config: IncrementalAlterConfigsRequest.AlterableConfig,
) -> None:
    text = config.value or ""
    match config.config_operation:
        case Operation.SET:
            texts[config.name] = text
        case Operation.DELETE:
            texts.pop(config.name, None)
        case Operation.APPEND | Operation.SUBTRACT:
            operation = Operation(config.config_operation)
            setting = settings.get(config.name)
            if setting is None or setting.kind is not Kind.LIST:
                reason = f"Can't {operation.name} to key {config.name} because its type is not LIST."
                raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
            old = texts.get(config.name, format_value(setting, setting.default)) or ""
            elements, given = _split(old), _split(text)
            if operation is Operation.APPEND:
                elements += [element for element in given if element not in elements]
            else:
                elements = [element for element in elements if element not in given]
            texts[config.name] = ",".join(elements)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {other}")


def _split(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _decide_records(view: View, resource: _Resource, texts: Mapping[str, str]) -> list[Message]:
    """What changes between the settings that the resource has and `texts`, the ones it shall have."""
    current = view.image.config(resource.resource_type, resource.resource_name)
    changed = {name: text for name, text in texts.items() if current.get(name) != text}
    if resource.resource_type == ResourceType.BROKER:
        # Set anew, though it is the same: then a broker reads its files again.
        changed |= {
            each.name: texts[each.name] for each in resource.configs if each.name in texts and is_store(each.name)
        }
    allows_unclean = False
    if resource.resource_type == ResourceType.TOPIC:
        config = parse_topic_config(texts, view.config)
        check_turned_off(current, config)
        remote_storage.check_topic(view.image, current, is_enabled=config.remote_storage_enable)
        allows_unclean = config.unclean_leader_election_enable
    elif resource.resource_type == ResourceType.GROUP:
        queues.check_group(view.image, apply_group(view.config, current), parse_group_config(texts, view.config))
    elif resource.resource_type == ResourceType.CLIENT_METRICS:
        parse_subscription(texts)
    else:
        _check_broker_settings(changed, is_for_all=not resource.resource_name)
    changes: dict[str, str | None] = {**changed, **{name: None for name in current if name not in texts}}
    return [
        *(
            ConfigRecord(
                resource_type=resource.resource_type, resource_name=resource.resource_name, name=name, value=value
            )
            for name, value in sorted(changes.items())
        ),
        *_decide_effects(view, resource, changes, allows_unclean=allows_unclean),
    ]


def _decide_effects(
    view: View, resource: _Resource, changes: Mapping[str, str | None], *, allows_unclean: bool
) -> list[PartitionChangeRecord]:
    """What changed settings do to partitions, in the same batch."""
    name = resource.resource_name
    if resource.resource_type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        return []
    if resource.resource_type == ResourceType.TOPIC:
        topics = [view.image.topics[name]]
    elif not name:
        if changes.get(MIN_INSYNC_REPLICAS, "") is None and keeps_eligible_leader_replicas(view.image):
            reason = "Cluster-level min.insync.replicas cannot be removed while eligible leader replicas are kept."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        # Those that have no value of their own.
        topics = [
            topic
            for topic in view.image.topics.values()
            if MIN_INSYNC_REPLICAS not in view.image.config(ResourceType.TOPIC, topic.name)
        ]
    else:
        if MIN_INSYNC_REPLICAS in changes and keeps_eligible_leader_replicas(view.image):
            reason = "Broker-level min.insync.replicas cannot be altered while eligible leader replicas are kept."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        return []
    records: list[PartitionChangeRecord] = []
    for topic in topics:
        if MIN_INSYNC_REPLICAS in changes:
            records += decide_without_eligible(topic)
        if allows_unclean and "unclean.leader.election.enable" in changes:
            records += decide_unclean_elections(view, topic)
    return records


def _check_broker_settings(texts: Mapping[str, str], *, is_for_all: bool) -> None:
    """Only what is changed is checked: an older version may have stored what this one does not know."""
    for name, text in texts.items():
        setting = _find_setting(name)
        if setting is None:
            refused = refused_broker_setting(name)
            if refused is not None:
                raise refused
            if any(word in name for word in _WORDS_OF_SECURITY):
                raise unknown_broker_setting(name)
            continue
        if not _is_dynamic(name, setting):
            reason = f"Cannot update these configs dynamically: [{name}]. Edit the broker's file and restart it."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if is_for_all and setting.name in STORE_SETTINGS:
            reason = f"Cannot update these configs at default cluster level: [{name}]. Name a single broker."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        try:
            parse_value(setting, text)
        except KafkaError as error:
            # Kafka answers with this code where it checks broker settings (KAFKA-13609).
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None


def _find_setting(name: str) -> Setting | None:
    if not name.startswith(PREFIX):
        return SETTINGS.get(name)
    found = find_setting(name)
    return None if found is None else found[1]


def _is_dynamic(name: str, setting: Setting) -> bool:
    """For single listeners nothing but their certificates is taken up while a broker runs."""
    return setting.dynamic and (name == setting.name or setting.name in STORE_SETTINGS)
