"""Links to other clusters: CreateMirrorLink, AlterMirrorLink.

The first one finalizes a feature, so that no node joins from then on that does not know the records of mirrors: one of
Apache Kafka would stop over them, or take produces for a mirror that it leads. A link is deleted only when nothing is
mirrored by it any more.
"""

from collections.abc import Iterator

from tailrace.controller.features import MIRROR_VERSION
from tailrace.controller.image import MetadataImage, MirrorLink, TopicImage
from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.controller.names import check_topic_name
from tailrace.controller.snapshot import mirror_link_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.mirrors import (
    AlterMirrorLinkRequest,
    AlterMirrorLinkResponse,
    CreateMirrorLinkRequest,
    CreateMirrorLinkResponse,
)
from tailrace.wire.apis.stored_records import FeatureLevelRecord, RemoveMirrorLinkRecord
from tailrace.wire.schema import Message

PAUSE, RESUME, DELETE = "pause", "resume", "delete"


def create_mirror_link(view: View, request: CreateMirrorLinkRequest) -> Result:
    image = view.image
    check_topic_name(request.name)
    settings = {setting.name: setting.value for setting in request.settings}
    parse_link_settings(settings)
    existing = image.mirror_link(request.name)
    if existing is not None:
        if (existing.source_cluster_id, existing.settings) == (request.source_cluster_id, settings):
            return Result([], CreateMirrorLinkResponse(link_id=existing.id))  # It was sent again.
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"There is a link {request.name!r} already, with other settings. Choose another name, or delete that one.",
        )
    if not request.source_cluster_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The source has told no cluster id: is it Kafka 2.1 or later?")
    if request.source_cluster_id == image.cluster_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The source is this cluster itself ({image.cluster_id}): a cluster cannot be a mirror of its own. Give "
            "the bootstrap.servers of the other one.",
        )
    link = MirrorLink(Uuid(view.random.uuid()), request.name, request.source_cluster_id, False, settings)
    records = [*begin_using_mirrors(image), mirror_link_record(link)]
    return Result([] if request.validate_only else records, CreateMirrorLinkResponse(link_id=link.id))


def alter_mirror_link(view: View, request: AlterMirrorLinkRequest) -> Result:
    link = find_link(view.image, request.name)
    records: list[Message] = []
    if request.action == DELETE:
        _check_unused(view.image, link)
        records.append(RemoveMirrorLinkRecord(link_id=link.id))
    elif request.action in (PAUSE, RESUME):
        is_paused = request.action == PAUSE
        if link.is_paused != is_paused:
            records.append(mirror_link_record(link._replace(is_paused=is_paused)))
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A link can be {PAUSE}d, {RESUME}d and {DELETE}d.")
    return Result([] if request.validate_only else records, AlterMirrorLinkResponse())


def find_link(image: MetadataImage, name: str) -> MirrorLink:
    link = image.mirror_link(name)
    if link is None:
        names = ", ".join(sorted(each.name for each in image.mirror_links.values())) or "none"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no link {name!r}. There are: {names}.")
    return link


def mirrors_of(image: MetadataImage, link_id: Uuid) -> Iterator[TopicImage]:
    """The topics that are mirrors by this link, or were."""
    return (each for each in image.topics.values() if each.mirror is not None and each.mirror.link_id == link_id)


def _check_unused(image: MetadataImage, link: MirrorLink) -> None:
    mirrored = [topic.name for topic in mirrors_of(image, link.id) if topic.mirror and topic.mirror.is_read_only]
    if mirrored:
        shown = ", ".join(mirrored[:5]) + (", ..." if len(mirrored) > 5 else "")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(mirrored)} topics are mirrored by the link {link.name!r} ({shown}). Promote them, fail them over "
            "or delete them first.",
        )


def begin_using_mirrors(image: MetadataImage) -> list[Message]:
    if image.features.get(MIRROR_VERSION, 0):
        return []
    nodes = [("broker", node_id, each.features) for node_id, each in sorted(image.brokers.items())]
    nodes += [("controller", node_id, each.features) for node_id, each in sorted(image.controllers.items())]
    for kind, node_id, features in nodes:
        if features.get(MIRROR_VERSION, (0, 0))[1] < 1:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The {kind} {node_id} cannot do mirrors: it is an older Tailrace, or Apache Kafka. All nodes of the "
                "cluster need this release.",
            )
    return [FeatureLevelRecord(name=MIRROR_VERSION, feature_level=1)]
