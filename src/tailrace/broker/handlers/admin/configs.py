"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Settings of a topic, of a group, of this broker, the levels of its log, and, under an empty name, those set dynamically
for all brokers. Each value comes with its source and, if asked for, its synonyms: all places that have a value for it,
the one that holds first.
Changes are the controller's to decide (controller.configs); the broker applies them when they are published.

Version notes: DescribeConfigs 3 adds types and documentation. ListConfigResources 0 was ListClientMetricsResources
and asks for those alone (KIP-1142).
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.controller.effective import (
    Entry,
    Layers,
    Source,
    broker_layers,
    broker_synonyms,
    further_settings,
    topic_config,
    topic_entry,
)
from tailrace.controller.image import ResourceType
from tailrace.controller.names import check_topic_name
from tailrace.controller.telemetry.subscriptions import CLIENT_METRICS_SETTINGS
from tailrace.model.config import GROUP_SETTINGS, SETTINGS, TOPIC_SETTINGS, format_value
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.settings import Setting
from tailrace.wire.apis.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Described = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

_LISTED_TYPES = tuple(ResourceType)
# Described before the loop turns; each takes about 0.2 ms.
_RESOURCES_PER_TURN = 8


async def handle_describe_configs(
    services: Services, _context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    limit = services.config.max_resources_per_describe
    if len(request.resources) > limit:
        reason = f"{len(request.resources)} resources in one request; max.resources.per.describe is {limit}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    layers = broker_layers(services.quorum.static_config, services.image)
    results = []
    for number, resource in enumerate(request.resources):
        if number % _RESOURCES_PER_TURN == _RESOURCES_PER_TURN - 1:
            await sleep(0)
        result = _Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            result.configs = _describe_resource(services, resource, request, layers)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe_resource(
    services: Services,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    request: DescribeConfigsRequest,
    layers: Layers,
) -> list[_Described]:
    name, keys = resource.resource_name, frozenset(resource.configuration_keys or ())
    match resource.resource_type:
        case ResourceType.TOPIC:
            described = _describe_topic(services, name, keys, layers)
        case ResourceType.GROUP:
            described = _describe_group(services, name, keys, layers)
        case ResourceType.BROKER if not name:
            described = _describe_all_brokers(keys, layers)
        case ResourceType.BROKER:
            _check_broker_name(services, name)
            described = [
                (setting, _effective(synonyms), synonyms)
                for setting in _asked([*SETTINGS.values(), *further_settings(layers)], keys)
                for synonyms in [broker_synonyms(setting.name, layers)]
            ]
        case ResourceType.BROKER_LOGGER:
            return _describe_loggers(services, name, keys)
        case ResourceType.CLIENT_METRICS:
            described = _describe_client_metrics(services, name, keys)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")
    return [_describe_entry(request, *each) for each in described]


def _describe_loggers(services: Services, name: str, keys: frozenset[str]) -> list[_Described]:
    from tailrace.broker.handlers.admin.loggers import logger_levels

    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker_name(services, name)
    return [
        _Described(name=logger, value=level, config_source=Source.BROKER_LOGGER)
        for logger, level in logger_levels().items()
        if not keys or logger in keys
    ]


def _describe_topic(
    services: Services, name: str, keys: frozenset[str], layers: Layers
) -> list[tuple[Setting, Entry, list[Entry]]]:
    check_topic_name(name)
    if name not in services.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    overrides = services.image.config(ResourceType.TOPIC, name)
    config = topic_config(services.config, services.image, name)
    described = []
    for setting in _asked(TOPIC_SETTINGS.values(), keys):
        entry = topic_entry(setting, config, overrides, layers)
        synonyms = [entry] if entry.source is Source.TOPIC else []
        if setting.broker_synonyms:
            synonyms += broker_synonyms(setting.broker_synonyms[0].name, layers)
        described.append((setting, entry, synonyms))
    return described


def _describe_group(
    services: Services, name: str, keys: frozenset[str], layers: Layers
) -> list[tuple[Setting, Entry, list[Entry]]]:
    """Whether there is such a group or not. What is told is what was set: the coordinator keeps it within the brokers'
    bounds."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    overrides = services.image.config(ResourceType.GROUP, name)
    described = []
    for setting in _asked(GROUP_SETTINGS.values(), keys):
        synonyms = [entry for each in setting.broker_synonyms for entry in broker_synonyms(each.name, layers)]
        if setting.name in overrides:
            synonyms.insert(0, Entry(setting.name, overrides[setting.name], Source.GROUP))
        if not setting.broker_synonyms:
            synonyms.append(Entry(setting.name, format_value(setting, setting.default), Source.DEFAULT))
        described.append((setting, _effective(synonyms), synonyms))
    return described


def _describe_client_metrics(
    services: Services, name: str, keys: frozenset[str]
) -> list[tuple[Setting, Entry, list[Entry]]]:
    """Whether there is such a subscription or not, as in Kafka."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    given = services.image.config(ResourceType.CLIENT_METRICS, name)
    described = []
    for setting in _asked(CLIENT_METRICS_SETTINGS.values(), keys):
        default = Entry(setting.name, format_value(setting, setting.default), Source.DEFAULT)
        synonyms = [Entry(setting.name, given[setting.name], Source.CLIENT_METRICS)] if setting.name in given else []
        described.append((setting, (synonyms or [default])[0], [*synonyms, default]))
    return described


def _describe_all_brokers(keys: frozenset[str], layers: Layers) -> list[tuple[Setting, Entry, list[Entry]]]:
    """Only what is set for all of them; defaults and files are each broker's own."""
    of_all = [(source, texts) for source, texts in layers if source is Source.DYNAMIC_DEFAULT_BROKER]
    rows = dict(SETTINGS) | {row.name: row for row in further_settings(of_all)}
    entries = [Entry(name, text, source) for source, texts in of_all for name, text in texts.items()]
    return [(rows[entry.name], entry, [entry]) for entry in entries if not keys or entry.name in keys]


def _effective(synonyms: list[Entry]) -> Entry:
    return synonyms[0] if synonyms else Entry("", None, Source.DEFAULT)


def _asked(settings: Iterable[Setting], keys: frozenset[str]) -> list[Setting]:
    """No keys mean all of them; unknown ones are left out, as in Kafka."""
    return [setting for setting in settings if not setting.internal and (not keys or setting.name in keys)]


def _check_broker_name(services: Services, name: str) -> None:
    if not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if name != str(services.node_id):
        reason = f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _describe_entry(
    request: DescribeConfigsRequest, setting: Setting, entry: Entry, synonyms: list[Entry]
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    return _Described(
        name=setting.name,
        value=None if setting.sensitive else entry.value,
        read_only=setting.scope == "broker" and not setting.dynamic,
        config_source=entry.source,
        is_sensitive=setting.sensitive,
        synonyms=[
            _Synonym(name=synonym.name, value=None if setting.sensitive else synonym.value, source=synonym.source)
            for synonym in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=setting.kind,
        documentation=setting.doc if request.include_documentation else None,
    )


def handle_list_config_resources(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    asked = request.resource_types or list(_LISTED_TYPES)
    if context.api_version == 0:
        asked = [ResourceType.CLIENT_METRICS]
    unknown = [number for number in asked if number not in _LISTED_TYPES]
    if unknown:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resource = ListConfigResourcesResponse.ConfigResource
    listed = []
    if ResourceType.TOPIC in asked:
        listed += [resource(resource_name=name, resource_type=ResourceType.TOPIC) for name in services.image.topics]
    for of_brokers in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if of_brokers in asked:
            listed += [
                resource(resource_name=str(node_id), resource_type=of_brokers)
                for node_id in sorted(services.image.brokers)
            ]
    listed += [
        resource(resource_name=name, resource_type=resource_type)
        for resource_type, name in sorted(services.image.configs)
        if resource_type in asked and resource_type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)
    ]
    return ListConfigResourcesResponse(config_resources=listed)
