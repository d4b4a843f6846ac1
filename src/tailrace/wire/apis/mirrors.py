"""Requests about mirrors of other clusters, which Kafka does not have: of our commands, and of brokers to controllers.

Declarations only, in the language of `wire.schema`.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class CreateMirrorLinkRequest(Message, api_key=ApiKey.CREATE_MIRROR_LINK, versions="0", flexible="0+"):
    class Setting(Struct):
        name: str = string("0+")
        value: str = string("0+")

    name: str = string("0+")
    source_cluster_id: str = string("0+")
    settings: list[Setting] = array(Setting, "0+")
    validate_only: bool = boolean("0+")


class CreateMirrorLinkResponse(Message, api_key=ApiKey.CREATE_MIRROR_LINK, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    link_id: bytes = uuid("0+")


class AlterMirrorLinkRequest(Message, api_key=ApiKey.ALTER_MIRROR_LINK, versions="0", flexible="0+"):
    """`pause`, `resume` or `delete`."""

    name: str = string("0+")
    action: str = string("0+")
    validate_only: bool = boolean("0+")


class AlterMirrorLinkResponse(Message, api_key=ApiKey.ALTER_MIRROR_LINK, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class OpenMirrorTopicsRequest(Message, api_key=ApiKey.OPEN_MIRROR_TOPICS, versions="0", flexible="0+"):
    """Mirrors become topics of their own: at once (`failover`), or once they have all that the source has (`promote`).
    `cancel` takes a promote back that still waits. `cut`: what their source has lost, or never had, is cut here too."""

    link_name: str = string("0+")
    action: str = string("0+")
    # All of the link where none is named.
    topics: list[str] = array(string, "0+")
    validate_only: bool = boolean("0+")


class OpenMirrorTopicsResponse(Message, api_key=ApiKey.OPEN_MIRROR_TOPICS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    # Those that were changed by it, or would be.
    topics: list[str] = array(string, "0+")


class CloseMirrorSourceRequest(Message, api_key=ApiKey.CLOSE_MIRROR_SOURCE, versions="0", flexible="0+"):
    """Topics here are handed over to a cluster that mirrors them: nobody but coordinators writes to them any more. Or
    that is taken back."""

    class Topic(Struct):
        name: str = string("0+")
        # Of one promote: what takes one back does not open what another one has closed.
        handover_id: bytes = uuid("0+")

    cluster_id: str = string("0+")
    topics: list[Topic] = array(Topic, "0+")
    is_closed: bool = boolean("0+", default=True)


class CloseMirrorSourceResponse(Message, api_key=ApiKey.CLOSE_MIRROR_SOURCE, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class ReverseMirrorRequest(Message, api_key=ApiKey.REVERSE_MIRROR, versions="0", flexible="0+"):
    """Topics here become mirrors of topics that have mirrored them: what their new source does not have is cut."""

    class Topic(Struct):
        name: str = string("0+")
        source_topic: str = string("0+")
        source_topic_id: bytes = uuid("0+")
        leader_epochs: list[int] = array(int32, "0+")

    link_name: str = string("0+")
    topics: list[Topic] = array(Topic, "0+")
    validate_only: bool = boolean("0+")


class ReverseMirrorResponse(Message, api_key=ApiKey.REVERSE_MIRROR, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    # Those that were changed by it, or would be.
    topics: list[str] = array(string, "0+")


class FollowMirrorSourceRequest(Message, api_key=ApiKey.FOLLOW_MIRROR_SOURCE, versions="0", flexible="0+"):
    """What a broker has found at the source of a link: mirrors are made or grow by it, and their leader epochs are
    raised to those of the source."""

    class Setting(Struct):
        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")

    class Topic(Struct):
        source_topic: str = string("0+")
        source_topic_id: bytes = uuid("0+")
        # The leader epoch of each partition that the source has; -1 where it is not known.
        leader_epochs: list[int] = array(int32, "0+")
        # The clusters from which the source has it, in their order, if it is a mirror there.
        origins: list[str] = array(string, "0+")
        # Settings that the mirror is to have, or with null not to have.
        settings: list[FollowMirrorSourceRequest.Setting] = array("Setting", "0+")

    class CaughtUp(Struct):
        source_topic: str = string("0+")
        handover_id: bytes = uuid("0+")

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    link_id: bytes = uuid("0+")
    topics: list[Topic] = array(Topic, "0+")
    # Those of promoted mirrors that have all that the source has, and may be opened: by the promote that was looked at.
    caught_up: list[CaughtUp] = array(CaughtUp, "0+")
    # Those that were to be cut, and of which each partition goes on with what the source has.
    agreeing: list[str] = array(string, "0+")


class FollowMirrorSourceResponse(Message, api_key=ApiKey.FOLLOW_MIRROR_SOURCE, versions="0", flexible="0+"):
    class Topic(Struct):
        source_topic: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    # Those that could not be followed.
    topics: list[Topic] = array(Topic, "0+")


class DescribeMirrorsRequest(Message, api_key=ApiKey.DESCRIBE_MIRRORS, versions="0", flexible="0+"):
    """Of one link, or with null of all. Every broker knows the links; of partitions each tells of those it leads."""

    link_name: str | None = string("0+", nullable="0+", default=None)


class DescribeMirrorsResponse(Message, api_key=ApiKey.DESCRIBE_MIRRORS, versions="0", flexible="0+"):
    class Setting(Struct):
        name: str = string("0+")
        value: str = string("0+")

    class OpenTransaction(Struct):
        producer_id: int = int64("0+")
        first_offset: int = int64("0+")

    class Partition(Struct):
        partition_index: int = int32("0+")
        leader_epoch: int = int32("0+")
        log_start_offset: int = int64("0+")
        log_end_offset: int = int64("0+")
        high_watermark: int = int64("0+")
        # Where its own records began, once it is open: all before it was mirrored.
        opened_offset: int = int64("0+", default=-1)
        # As the source has last told; -1 if it has not.
        source_end_offset: int = int64("0+", default=-1)
        # What it lacks of that, by the mean size of what is here; -1 if it is not known.
        lag_bytes: int = int64("0+", default=-1)
        # When the last mirrored record was written, by its own timestamp; -1 if there is none.
        last_timestamp: int = int64("0+", default=-1)
        # How long ago this partition was known to have all that the source has; -1 if it never was.
        behind_ms: int = int64("0+", default=-1)
        bytes_per_second: int = int64("0+")
        open_transactions: list[DescribeMirrorsResponse.OpenTransaction] = array("OpenTransaction", "0+")
        # Why it does not go on, if it does not.
        problem: str | None = string("0+", nullable="0+", default=None)
        # Nothing but an operator lets it go on.
        is_stopped: bool = boolean("0+")
        # It has the history of its source, as far as it goes: the source has taken up a fetch from its end.
        is_agreeing: bool = boolean("0+")

    class Topic(Struct):
        name: str = string("0+")
        source_topic: str = string("0+")
        state: str = string("0+")
        # The clusters that it comes from, the one that it is mirrored from last.
        origins: list[str] = array(string, "0+")
        opening_epoch: int = int32("0+", default=-1)
        partition_count: int = int32("0+")
        partitions: list[DescribeMirrorsResponse.Partition] = array("Partition", "0+")

    class Link(Struct):
        name: str = string("0+")
        link_id: bytes = uuid("0+")
        source_cluster_id: str = string("0+")
        is_paused: bool = boolean("0+")
        settings: list[DescribeMirrorsResponse.Setting] = array("Setting", "0+")
        topics: list[DescribeMirrorsResponse.Topic] = array("Topic", "0+")
        # What this broker meets in its work for the link.
        problems: list[str] = array(string, "0+")

    class ClosedPartition(Struct):
        partition_index: int = int32("0+")
        leader_epoch: int = int32("0+")
        log_end_offset: int = int64("0+")
        high_watermark: int = int64("0+")
        has_open_transactions: bool = boolean("0+")

    class ClosedTopic(Struct):
        """Handed over to another cluster. Of its partitions those that are led here, by a leader that knows it."""

        name: str = string("0+")
        cluster_id: str = string("0+")
        handover_id: bytes = uuid("0+")
        partitions: list[DescribeMirrorsResponse.ClosedPartition] = array("ClosedPartition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    links: list[Link] = array(Link, "0+")
    closed: list[ClosedTopic] = array(ClosedTopic, "0+")
