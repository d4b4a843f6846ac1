"""Mirrors as an administrator sees them: links to other clusters, how far their topics are, and how they are opened.

What a link is any broker tells, and of partitions each tells of those it leads: all are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace import __version__
from tailrace.client.connection import CLIENT_SOFTWARE, Connection, error_code
from tailrace.client.metadata import Cluster
from tailrace.controller.features import MIRROR_VERSION
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.apis.mirrors import (
    AlterMirrorLinkRequest,
    AlterMirrorLinkResponse,
    CloseMirrorSourceRequest,
    CloseMirrorSourceResponse,
    CreateMirrorLinkRequest,
    CreateMirrorLinkResponse,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
    OpenMirrorTopicsRequest,
    OpenMirrorTopicsResponse,
    ReverseMirrorRequest,
    ReverseMirrorResponse,
)

MirrorPartition = DescribeMirrorsResponse.Partition


async def can_mirror(connection: Connection) -> bool:
    """Whether who answers there is Tailrace, and could be closed or become a mirror, be it that it has no link yet."""
    request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE, client_software_version=__version__)
    answer = await connection.call(request, ApiVersionsResponse)
    return any(each.name == MIRROR_VERSION and each.max_version > 0 for each in answer.supported_features)


class MirroredTopic(NamedTuple):
    name: str
    source_topic: str
    state: str  # mirroring, promoting, cutting or open
    partition_count: int
    partitions: Mapping[int, MirrorPartition]  # Those whose leaders have answered.

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_told(self) -> bool:
        return len(self.partitions) == self.partition_count

    @property
    def lag(self) -> int:
        """In records, as far as the source has told where it ends."""
        return sum(max(0, each.source_end_offset - each.high_watermark) for each in self.partitions.values())

    @property
    def behind_ms(self) -> int:
        """-1 if one of its partitions never had all that the source has."""
        told = [each.behind_ms for each in self.partitions.values()]
        return -1 if not told or -1 in told else max(told)


class DescribedLink(NamedTuple):
    name: str
    source_cluster_id: str
    is_paused: bool
    settings: Mapping[str, str]
    problems: tuple[str, ...]
    topics: Mapping[str, MirroredTopic]


class MirrorAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def create(
        self, name: str, source_cluster_id: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        request = CreateMirrorLinkRequest(
            name=name,
            source_cluster_id=source_cluster_id,
            settings=[CreateMirrorLinkRequest.Setting(name=key, value=settings[key]) for key in sorted(settings)],
            validate_only=validate_only,
        )
        answer = await (await self.cluster.any_connection()).call(request, CreateMirrorLinkResponse)
        _check(answer.error_code, answer.error_message, f"the link {name} is not made")

    async def alter(self, name: str, action: str, *, validate_only: bool = False) -> None:
        """`pause`, `resume` or `delete`."""
        request = AlterMirrorLinkRequest(name=name, action=action, validate_only=validate_only)
        answer = await (await self.cluster.any_connection()).call(request, AlterMirrorLinkResponse)
        _check(answer.error_code, answer.error_message, f"{action} of the link {name} was refused")

    async def open_topics(
        self, link_name: str, action: str, topics: Sequence[str] = (), *, validate_only: bool = False
    ) -> list[str]:
        """`failover`, `promote`, `cancel` or `cut`, of these topics or of all; gives those that it concerns."""
        request = OpenMirrorTopicsRequest(
            link_name=link_name, action=action, topics=list(topics), validate_only=validate_only
        )
        answer = await (await self.cluster.any_connection()).call(request, OpenMirrorTopicsResponse)
        _check(answer.error_code, answer.error_message, f"{action} was refused")
        return answer.topics

    async def reverse(
        self, link_name: str, topics: Sequence[ReverseMirrorRequest.Topic], *, validate_only: bool = False
    ) -> list[str]:
        """Topics of this cluster become mirrors by the link of those that have mirrored them; gives which."""
        request = ReverseMirrorRequest(link_name=link_name, topics=list(topics), validate_only=validate_only)
        answer = await (await self.cluster.any_connection()).call(request, ReverseMirrorResponse)
        _check(answer.error_code, answer.error_message, "reverse was refused")
        return answer.topics

    async def reopen(self, cluster_id: str, topics: Sequence[str]) -> None:
        """Topics of this cluster, which were handed over to that one, are written to again."""
        request = CloseMirrorSourceRequest(
            cluster_id=cluster_id,
            topics=[CloseMirrorSourceRequest.Topic(name=name) for name in topics],
            is_closed=False,
        )
        answer = await (await self.cluster.any_connection()).call(request, CloseMirrorSourceResponse)
        _check(answer.error_code, answer.error_message, "they are not opened")

    async def closed(self) -> dict[str, str]:
        """The topics of this cluster that were handed over, and to which cluster."""
        answer = await (await self.cluster.any_connection()).call(DescribeMirrorsRequest(), DescribeMirrorsResponse)
        _check(answer.error_code, answer.error_message, "links are not told")
        return {topic.name: topic.cluster_id for topic in answer.closed}

    async def describe(self, link_name: str | None = None) -> dict[str, DescribedLink]:
        """By name. Brokers that do not answer are left out, and with them what they lead."""
        await self.cluster.refresh([])
        answers: list[DescribeMirrorsResponse] = []
        failure: KafkaError | None = None
        for node_id in sorted(self.cluster.brokers):
            try:
                connection = await self.cluster.connection_to(node_id)
                answers.append(
                    await connection.call(DescribeMirrorsRequest(link_name=link_name), DescribeMirrorsResponse)
                )
            except KafkaError as error:
                failure = error
        if not answers and failure is not None:
            raise failure
        for answer in answers:
            _check(answer.error_code, answer.error_message, "links are not told")
        links = _merge(answers)
        if link_name is not None and link_name not in links:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no link {link_name!r}")
        return links


def _merge(answers: Sequence[DescribeMirrorsResponse]) -> dict[str, DescribedLink]:
    links: dict[str, DescribedLink] = {}
    topics: dict[str, dict[str, MirroredTopic]] = {}
    for link in (each for answer in answers for each in answer.links):
        known = topics.setdefault(link.name, {})
        for topic in link.topics:
            before = known.get(topic.name)
            partitions = {each.partition_index: each for each in topic.partitions}
            known[topic.name] = MirroredTopic(
                topic.name,
                topic.source_topic,
                topic.state,
                topic.partition_count,
                {**(before.partitions if before else {}), **partitions},
            )
        problems = (*(links[link.name].problems if link.name in links else ()), *link.problems)
        links[link.name] = DescribedLink(
            link.name,
            link.source_cluster_id,
            link.is_paused,
            {setting.name: setting.value for setting in link.settings},
            tuple(dict.fromkeys(problems)),
            known,
        )
    return links


def _check(number: int, message: str | None, failure: str) -> None:
    if number:
        raise KafkaError(error_code(number), message or failure)
