"""Links to other clusters and their mirrors, as metadata."""

import pytest

from tailrace.controller.features import MIRROR_VERSION
from tailrace.controller.image import MetadataImage, MirrorState
from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.controller.partitions.change import RECOVERING
from tailrace.controller.replay import Replay
from tailrace.controller.snapshot import records_of
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import CreatePartitionsRequest, CreatePartitionsResponse
from tailrace.wire.apis.mirrors import (
    AlterMirrorLinkRequest,
    AlterMirrorLinkResponse,
    CloseMirrorSourceRequest,
    CloseMirrorSourceResponse,
    CreateMirrorLinkRequest,
    CreateMirrorLinkResponse,
    FollowMirrorSourceRequest,
    FollowMirrorSourceResponse,
    OpenMirrorTopicsRequest,
    OpenMirrorTopicsResponse,
    ReverseMirrorRequest,
    ReverseMirrorResponse,
)
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse
from tailrace.wire.apis.quorum import BrokerRegistrationResponse
from tests.unit.controller.cluster import CLUSTER_ID, Cluster, topic

SOURCE_ID = "BBBBBBBBBBBBBBBBBBBBBB"
TOPIC_ID = b"orders-at-source"
Setting = FollowMirrorSourceRequest.Setting
CaughtUp = FollowMirrorSourceRequest.CaughtUp


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=3, features=True)
    link(cluster)
    return cluster


def link(cluster: Cluster, name: str = "dc1", source: str = SOURCE_ID, **settings: str) -> None:
    texts = {"bootstrap.servers": "there:9092", **{key.replace("_", "."): value for key, value in settings.items()}}
    request = CreateMirrorLinkRequest(
        name=name,
        source_cluster_id=source,
        settings=[CreateMirrorLinkRequest.Setting(name=key, value=value) for key, value in texts.items()],
    )
    cluster.do(request, CreateMirrorLinkResponse)


def alter(cluster: Cluster, action: str) -> None:
    cluster.do(AlterMirrorLinkRequest(name="dc1", action=action), AlterMirrorLinkResponse)


def follow(
    cluster: Cluster,
    *epochs: int,
    name: str = "orders",
    topic_id: bytes = TOPIC_ID,
    caught_up: bool | bytes = False,
    agreeing: bool = False,
    origins: tuple[str, ...] = (),
    **settings: str | None,
) -> FollowMirrorSourceResponse:
    found = FollowMirrorSourceRequest.Topic(
        source_topic=name,
        source_topic_id=topic_id,
        leader_epochs=list(epochs),
        origins=list(origins),
        settings=[Setting(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )
    mirror = cluster.image.topics[name].mirror if caught_up is True else None
    promote = caught_up if isinstance(caught_up, bytes) else mirror.handover_id if mirror else bytes(16)
    request = FollowMirrorSourceRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        link_id=cluster.image.mirror_link("dc1").id,
        topics=[found],
        caught_up=[CaughtUp(source_topic=name, handover_id=promote)] if caught_up else [],
        agreeing=[name] if agreeing else [],
    )
    return cluster.do(request, FollowMirrorSourceResponse)


def open_topics(cluster: Cluster, action: str, *names: str) -> list[str]:
    request = OpenMirrorTopicsRequest(link_name="dc1", action=action, topics=list(names))
    return cluster.do(request, OpenMirrorTopicsResponse).topics


def epochs(cluster: Cluster, name: str = "orders") -> list[int]:
    return [each.leader_epoch for each in cluster.image.topics[name].partitions.values()]


def test_a_mirror_has_the_partitions_epochs_and_settings_of_its_source(cluster):
    assert follow(cluster, 7, 0, 12, retention_ms="5").topics == []
    mirror = cluster.image.topics["orders"].mirror
    assert (mirror.source_topic, mirror.source_topic_id, mirror.state) == ("orders", TOPIC_ID, MirrorState.MIRRORING)
    assert epochs(cluster) == [7, 0, 12]
    assert cluster.image.config(2, "orders") == {"retention.ms": "5"}


def test_leader_epochs_are_raised_to_the_source_s_and_never_lowered(cluster):
    follow(cluster, 7, 0)
    before = cluster.partition("orders", 1)
    follow(cluster, 3, 9)
    assert epochs(cluster) == [7, 9]
    raised = cluster.partition("orders", 1)
    assert raised == before._replace(leader_epoch=9, partition_epoch=before.partition_epoch + 1)


def test_the_same_finding_twice_changes_nothing(cluster):
    follow(cluster, 7, 0, retention_ms="5")
    before = cluster.image
    follow(cluster, 7, 0, retention_ms="5")
    assert cluster.image is before


def test_a_mirror_grows_with_its_source_and_by_nothing_else(cluster):
    follow(cluster, 1)
    follow(cluster, 1, 5)
    assert epochs(cluster) == [1, 5]
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=4)
    answer = cluster.do(CreatePartitionsRequest(topics=[asked]), CreatePartitionsResponse)
    assert answer.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert len(cluster.image.topics["orders"].partitions) == 2


def test_settings_that_the_source_does_not_have_any_more_go(cluster):
    follow(cluster, 1, retention_ms="5", segment_bytes="1048576")
    follow(cluster, 1, retention_ms=None, segment_bytes="1048576")
    assert cluster.image.config(2, "orders") == {"segment.bytes": "1048576"}


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        ({"topic_id": b"made-anew-source"}, ErrorCode.INCONSISTENT_TOPIC_ID),
        ({"count": 1}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "taken"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "tak_en"}, None),
        ({"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_followed_is_told_and_left_as_it_is(cluster, finding, code):
    cluster.create(topic("taken", 2, 1))
    follow(cluster, 1, 1)
    before = cluster.image
    count = finding.pop("count", 2)
    refused = follow(cluster, *[4] * count, **finding).topics
    assert [each.error_code for each in refused] == ([] if code is None else [code])
    assert (cluster.image is before) == (code is not None)


def test_a_failover_begins_one_epoch_for_all_partitions_above_all_of_the_source_s(cluster):
    follow(cluster, 7, 30)
    assert open_topics(cluster, "failover") == ["orders"]
    mirror = cluster.image.topics["orders"].mirror
    assert (mirror.state, mirror.is_read_only) == (MirrorState.OPEN, False)
    assert set(epochs(cluster)) == {mirror.opening_epoch}
    assert mirror.opening_epoch > 30
    before = cluster.image
    assert open_topics(cluster, "failover") == []
    follow(cluster, 500, 500)
    assert cluster.image is before, "it follows nobody any more"


def test_a_promote_waits_until_all_of_the_source_is_here(cluster):
    follow(cluster, 7, 30)
    assert open_topics(cluster, "promote", "orders") == ["orders"]
    assert cluster.image.topics["orders"].mirror.state is MirrorState.PROMOTING
    follow(cluster, 7, 31)
    assert cluster.image.topics["orders"].mirror.is_read_only
    follow(cluster, 7, 31, 0, caught_up=True)
    assert cluster.image.topics["orders"].mirror.is_read_only, "there is a partition that is not here"
    follow(cluster, 7, 31, 0, caught_up=True)
    mirror = cluster.image.topics["orders"].mirror
    assert mirror.state is MirrorState.OPEN
    assert set(epochs(cluster)) == {mirror.opening_epoch}
    assert mirror.opening_epoch > 31


def test_a_promote_is_taken_back(cluster):
    follow(cluster, 1)
    open_topics(cluster, "promote")
    assert open_topics(cluster, "cancel") == ["orders"]
    follow(cluster, 1, caught_up=True)
    assert cluster.image.topics["orders"].mirror.state is MirrorState.MIRRORING


def refusal(cluster: Cluster, act) -> ErrorCode:
    before = cluster.image
    with pytest.raises(KafkaError) as raised:
        act()
    assert cluster.image is before
    return raised.value.code


def test_what_links_refuse(cluster):
    follow(cluster, 1)
    for act, code in (
        (lambda: link(cluster, "itself", CLUSTER_ID), ErrorCode.INVALID_REQUEST),
        (lambda: link(cluster, "nobody", ""), ErrorCode.INVALID_REQUEST),
        (lambda: link(cluster, "dc1", SOURCE_ID, topics="other"), ErrorCode.INVALID_REQUEST),
        (lambda: link(cluster, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda: link(cluster, "odd", start="tomorrow"), ErrorCode.INVALID_CONFIG),
        (lambda: alter(cluster, "delete"), ErrorCode.INVALID_REQUEST),
        (lambda: alter(cluster, "twist"), ErrorCode.INVALID_REQUEST),
        (lambda: open_topics(cluster, "failover", "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: open_topics(cluster, "twist"), ErrorCode.INVALID_REQUEST),
    ):
        assert refusal(cluster, act) is code


def test_the_same_link_again_is_no_other(cluster):
    before = cluster.image
    link(cluster)
    assert cluster.image is before


def test_a_paused_link_follows_nothing_and_promotes_nothing(cluster):
    follow(cluster, 1)
    alter(cluster, "pause")
    before = cluster.image
    assert follow(cluster, 9).error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert cluster.image is before
    assert refusal(cluster, lambda: open_topics(cluster, "promote")) is ErrorCode.INVALID_REQUEST
    alter(cluster, "resume")
    follow(cluster, 9)
    assert epochs(cluster) == [9]


def test_a_link_that_is_not_used_any_more_is_deleted(cluster):
    follow(cluster, 1)
    open_topics(cluster, "failover")
    alter(cluster, "delete")
    assert cluster.image.mirror_links == {}
    assert not cluster.image.topics["orders"].mirror.is_read_only


def test_the_first_link_needs_nodes_that_know_mirrors_and_keeps_others_out():
    cluster = Cluster(brokers=2, features=True)
    old = cluster.image.brokers[2]
    registration = cluster.registration(2, previous_broker_epoch=old.epoch)
    registration.features = [each for each in registration.features if each.name != MIRROR_VERSION]
    cluster.do(registration, BrokerRegistrationResponse)
    assert refusal(cluster, lambda: link(cluster)) is ErrorCode.UNSUPPORTED_VERSION
    cluster.register(2, previous_broker_epoch=cluster.image.brokers[2].epoch)
    link(cluster)
    assert cluster.image.features[MIRROR_VERSION] == 1
    stranger = cluster.registration(3)
    stranger.features = registration.features
    refused = cluster.do(stranger, BrokerRegistrationResponse)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_links_and_mirrors_outlast_a_snapshot_and_a_restart(cluster):
    follow(cluster, 7, 30, retention_ms="5")
    open_topics(cluster, "failover")
    follow(cluster, 3, name="other")
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, record in enumerate(record for group in records_of(cluster.image) for record in group):
        replay.replay_record(offset, record)
    replay.replay_control(cluster.image.next_offset)
    assert replay.image() == cluster.image == cluster.rebuilt()


def close(
    cluster: Cluster, handover: bytes = b"first-----------", to: str = SOURCE_ID, *, is_closed: bool = True
) -> None:
    asked = CloseMirrorSourceRequest.Topic(name="orders", handover_id=handover)
    request = CloseMirrorSourceRequest(cluster_id=to, topics=[asked], is_closed=is_closed)
    cluster.do(request, CloseMirrorSourceResponse)


def reverse(cluster: Cluster, *epochs: int, name: str = "orders") -> list[str]:
    asked = ReverseMirrorRequest.Topic(
        name=name, source_topic=name, source_topic_id=TOPIC_ID, leader_epochs=list(epochs)
    )
    request = ReverseMirrorRequest(link_name="dc1", topics=[asked])
    return cluster.do(request, ReverseMirrorResponse).topics


def test_a_promote_that_was_taken_back_opens_nothing_even_if_it_was_asked_for_again(cluster):
    follow(cluster, 1)
    open_topics(cluster, "promote")
    first = cluster.image.topics["orders"].mirror.handover_id
    open_topics(cluster, "cancel")
    assert cluster.image.topics["orders"].mirror.handover_id == first, "it tells what to open at the source"
    open_topics(cluster, "promote")
    follow(cluster, 1, caught_up=first)
    assert cluster.image.topics["orders"].mirror.is_read_only
    follow(cluster, 1, caught_up=True)
    assert not cluster.image.topics["orders"].mirror.is_read_only


def test_a_topic_is_handed_over_and_its_leaders_look_again():
    cluster = Cluster(brokers=3, features=True)
    cluster.create(topic("orders", partitions=2))
    before = cluster.partition("orders", 1)
    close(cluster)
    orders = cluster.image.topics["orders"]
    assert (orders.closed, orders.is_read_only) == ((SOURCE_ID, b"first-----------"), True)
    assert cluster.partition("orders", 1) == before._replace(partition_epoch=before.partition_epoch + 1)
    assert cluster.image.features[MIRROR_VERSION] == 1
    image = cluster.image
    close(cluster)
    assert cluster.image is image, "once more changes nothing"
    assert cluster.rebuilt() == image


def test_only_the_promote_that_has_closed_a_topic_last_opens_it():
    cluster = Cluster(brokers=1, features=True)
    cluster.create(topic("orders"))
    close(cluster, b"first-----------")
    close(cluster, b"second----------")
    close(cluster, b"first-----------", is_closed=False)
    assert cluster.image.topics["orders"].is_read_only
    close(cluster, b"second----------", is_closed=False)
    assert cluster.image.topics["orders"].closed is None
    close(cluster, b"third-----------")
    close(cluster, bytes(16), is_closed=False)
    assert cluster.image.topics["orders"].closed is None, "an operator does"


def test_what_is_not_handed_over(cluster):
    follow(cluster, 1)
    assert refusal(cluster, lambda: close(cluster)) is ErrorCode.POLICY_VIOLATION  # It is a mirror.
    open_topics(cluster, "failover")
    close(cluster)
    assert refusal(cluster, lambda: close(cluster, to="somebody else")) is ErrorCode.POLICY_VIOLATION
    assert refusal(cluster, lambda: close(cluster, to=CLUSTER_ID)) is ErrorCode.INVALID_REQUEST


def test_a_reverse_makes_a_mirror_above_the_epochs_of_its_new_source(cluster):
    cluster.create(topic("orders", partitions=2))
    close(cluster)
    assert reverse(cluster, 107, 0) == ["orders"]
    orders = cluster.image.topics["orders"]
    assert (orders.mirror.state, orders.mirror.origins, orders.closed) == (MirrorState.CUTTING, (SOURCE_ID,), None)
    assert epochs(cluster) == [108, 1]
    image = cluster.image
    assert reverse(cluster, 300, 300) == []
    assert cluster.image is image, "once more changes nothing"
    follow(cluster, 107, 0, agreeing=True)
    assert cluster.image.topics["orders"].mirror.state is MirrorState.MIRRORING
    follow(cluster, 200, 0)
    assert epochs(cluster) == [200, 1]
    assert cluster.rebuilt() == cluster.image


def test_what_cannot_be_reversed(cluster):
    cluster.create(topic("orders", partitions=2), topic("taken"))
    close(cluster, to="somebody else")
    assert refusal(cluster, lambda: reverse(cluster, 1, 1)) is ErrorCode.POLICY_VIOLATION
    assert refusal(cluster, lambda: reverse(cluster, 1)) is ErrorCode.INVALID_PARTITIONS
    link(cluster, "dc2", "CCCCCCCCCCCCCCCCCCCCCC", topics="other")
    asked = ReverseMirrorRequest.Topic(name="taken", source_topic="taken", leader_epochs=[1])
    request = ReverseMirrorRequest(link_name="dc2", topics=[asked])
    assert refusal(cluster, lambda: cluster.do(request, ReverseMirrorResponse)) is ErrorCode.INVALID_REQUEST


def ask_to_cut(cluster: Cluster, index: int = 0) -> ErrorCode:
    leader = cluster.partition("orders", index).leader
    request = AllowTruncationRequest(
        broker_id=leader,
        broker_epoch=cluster.image.brokers[leader].epoch,
        topic_id=cluster.image.topics["orders"].id,
        partition_index=index,
        leader_epoch=cluster.partition("orders", index).leader_epoch,
    )
    return ErrorCode(cluster.do(request, AllowTruncationResponse).error_code)


def test_a_cut_begins_an_epoch_in_which_the_leader_is_alone(cluster):
    follow(cluster, 7, 7)
    assert refusal(cluster, lambda: ask_to_cut(cluster)) is ErrorCode.POLICY_VIOLATION
    assert open_topics(cluster, "cut") == ["orders"]
    before = cluster.partition("orders", 0)
    assert ask_to_cut(cluster) is ErrorCode.NONE
    after = cluster.partition("orders", 0)
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, 8, (before.leader,))
    assert after.leader_recovery_state == RECOVERING
    assert cluster.partition("orders", 1).isr != (after.leader,)
    follow(cluster, 7, 7, agreeing=True)
    assert refusal(cluster, lambda: ask_to_cut(cluster)) is ErrorCode.POLICY_VIOLATION


def test_what_comes_from_here_by_way_of_others_is_not_mirrored_back(cluster):
    assert follow(cluster, 1, origins=("other", CLUSTER_ID)).topics[0].error_code == ErrorCode.INVALID_REQUEST
    follow(cluster, 1, origins=("other",))
    assert cluster.image.topics["orders"].mirror.origins == ("other", SOURCE_ID)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("orders", True),
        ("payments-eu", True),
        ("payment", False),
        ("payments-test", False),
        ("__consumer_offsets", False),
        ("__remote_log_metadata", False),
    ],
)
def test_topics_are_chosen_by_names_and_beginnings(name, is_taken):
    settings = parse_link_settings(
        {
            "bootstrap.servers": "x",
            "topics": "orders, payments*,__consumer_offsets, __remote_*",
            "topics.exclude": "*-test,payments-test",
        }
    )
    assert settings.takes_topic(name) == is_taken


@pytest.mark.parametrize(
    ("text", "start", "offset"),
    [
        ("earliest", "earliest", -1),
        ("latest", "latest", -1),
        ("1700000000000", 1_700_000_000_000, -1),
        ("offset:42", "offset:42", 42),
    ],
)
def test_a_mirror_begins_where_its_link_says(text, start, offset):
    settings = parse_link_settings({"bootstrap.servers": "x", "start": text})
    assert (settings.start, settings.start_offset) == (start, offset)


@pytest.mark.parametrize("text", ["offset:", "offset:-1", "offset:x", "-5", "monday"])
def test_where_no_mirror_can_begin(text):
    with pytest.raises(KafkaError, match="start is"):
        parse_link_settings({"bootstrap.servers": "x", "start": text})
