"""UpdateFeatures (KIP-584, KIP-778): finalizes other levels of features, all of a request or none.

A level must be one that every registered node can do. metadata.version and kraft.version have one level each in this
version: asking for it is fine and changes nothing.
"""

from collections.abc import Iterator, Mapping

from tailrace.controller.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    MIN_INSYNC_REPLICAS,
    SUPPORTED_FEATURES,
    default_min_insync_replicas,
)
from tailrace.controller.image import METADATA_VERSION, MetadataImage, ResourceType
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import UpdateFeaturesRequest, UpdateFeaturesResponse
from tailrace.wire.apis.stored_records import ConfigRecord, FeatureLevelRecord
from tailrace.wire.schema import Message

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(view: View, request: UpdateFeaturesRequest) -> Result:
    """Version 2 of the response has no place for single results; in earlier ones each repeats that of the whole."""
    records: list[Message] = []
    error: KafkaError | None = None
    try:
        for update in request.feature_updates:
            records += _decide_update(view, update)
    except KafkaError as raised:
        records, error = [], raised
    code = error.code if error else ErrorCode.NONE
    message = error.message if error else None
    response = UpdateFeaturesResponse(
        error_code=code,
        error_message=message,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature, error_code=code, error_message=message
            )
            for update in request.feature_updates
        ],
    )
    return Result([] if request.validate_only else records, response)


def _decide_update(view: View, update: UpdateFeaturesRequest.FeatureUpdateKey) -> list[Message]:
    name, level = update.feature, update.max_version_level
    is_downgrade_allowed = update.allow_downgrade or update.upgrade_type in (_SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
    if update.upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid_update(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid_update(name, level, "A feature version cannot be less than 0.")
    for node, supported in _supported_by_nodes(view.image):
        lowest, highest = supported.get(name, (0, 0))
        if level != 0 and not lowest <= level <= highest:
            can = f"only supports versions {lowest}-{highest}" if highest else "does not support this feature"
            raise _invalid_update(name, level, f"{node} {can}.")
    if name in (METADATA_VERSION, KRAFT_VERSION):
        if level != SUPPORTED_FEATURES[name][1]:
            raise _invalid_update(name, level, "This version of the cluster knows no other level.")
        return []
    current = view.image.features.get(name, 0)
    if level < current and not is_downgrade_allowed:
        reason = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        raise _invalid_update(name, level, f"{reason} downgrade.")
    if level > current and is_downgrade_allowed:
        raise _invalid_update(name, level, "Can't downgrade to a newer version.")
    if level == current:
        return []
    agreement = _agree_on_min_insync_replicas(view) if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level else []
    return [FeatureLevelRecord(name=name, feature_level=level), *agreement]


def _agree_on_min_insync_replicas(view: View) -> list[Message]:
    """Which replicas are eligible depends on it, so that no broker may have a value of its own."""
    own = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None)
        for (resource_type, name), values in sorted(view.image.configs.items())
        if resource_type == ResourceType.BROKER and name and MIN_INSYNC_REPLICAS in values
    ]
    has_default = MIN_INSYNC_REPLICAS in view.image.config(ResourceType.BROKER, "")
    return [*own, *([] if has_default else default_min_insync_replicas(view.static_config))]


def _supported_by_nodes(image: MetadataImage) -> Iterator[tuple[str, Mapping[str, tuple[int, int]]]]:
    yield "The controller", SUPPORTED_FEATURES
    for node_id, broker in sorted(image.brokers.items()):
        yield f"Broker {node_id}", broker.features
    for node_id, controller in sorted(image.controllers.items()):
        yield f"Controller {node_id}", controller.features


def _invalid_update(name: str, level: int, reason: str) -> KafkaError:
    message = f"Invalid update version {level} for feature {name}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
