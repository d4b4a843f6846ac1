"""What offsets, listing and deletion ask of a classic group."""

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tests.unit.coordinator.classic.scene import DELAY_MS, RANGE, SESSION_MS, Scene, subscription


def commit_error(scene: Scene, member_id: str = "", generation: int = -1, **fields: object) -> ErrorCode:
    arguments = {"group_instance_id": None, "is_transactional": False, "api_version": 9, **fields}
    try:
        scene.group.check_offset_commit(member_id=member_id, generation=generation, **arguments)  # type: ignore[arg-type]
    except KafkaError as fault:
        return fault.code
    return ErrorCode.NONE


def error_of(check) -> ErrorCode:
    try:
        check()
    except KafkaError as fault:
        return fault.code
    return ErrorCode.NONE


def test_only_members_of_this_generation_commit():
    scene = Scene()
    (member,) = scene.stable(1)
    assert commit_error(scene, member, 1) is ErrorCode.NONE
    assert commit_error(scene, member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(scene, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(scene) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(scene, member, 1, group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    # An old transactional producer does not say who it is.
    assert commit_error(scene, is_transactional=True) is ErrorCode.NONE
    assert commit_error(scene, member, 0, is_transactional=True) is ErrorCode.ILLEGAL_GENERATION


def test_members_may_commit_while_they_gather_but_not_before_the_assignment():
    scene = Scene()
    ids = scene.stable(2)
    scene.join(ids[0])
    assert commit_error(scene, ids[1], 1) is ErrorCode.NONE
    scene.join(ids[1])
    assert scene.group.state == "CompletingRebalance"
    assert commit_error(scene, ids[1], 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit_error(scene, ids[1], 2, is_transactional=True) is ErrorCode.NONE


def test_anybody_commits_to_an_empty_group_without_a_generation():
    scene = Scene()
    (member,) = scene.stable(1)
    scene.leave((member, None))
    assert commit_error(scene) is ErrorCode.NONE
    assert commit_error(scene, member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_extends_the_session():
    scene = Scene()
    (member,) = scene.stable(1)
    scene.pass_ms(SESSION_MS - 1)
    scene.group.note_commit(member, scene.call(), scene.machine.state.deadlines)
    scene.group.note_commit("stranger", scene.call(), scene.machine.state.deadlines)
    scene.pass_ms(SESSION_MS - 1)
    assert list(scene.group.members) == [member]
    scene.pass_ms(1)
    assert scene.group.is_empty


def test_a_group_with_members_is_not_deleted():
    scene = Scene()
    (member,) = scene.stable(1)
    assert error_of(scene.group.check_deletion) is ErrorCode.NON_EMPTY_GROUP
    assert error_of(scene.group.check_offset_delete) is ErrorCode.NONE
    scene.leave((member, None))
    assert error_of(scene.group.check_deletion) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "topics"),
    [
        ("consumer", subscription("t", "u"), {"t", "u"}),
        ("consumer", subscription("u", version=3), {"u"}),
        ("consumer", subscription(), set()),
        # What cannot be read may be a subscription to anything.
        ("consumer", b"", {"t", "u", "v"}),
        ("consumer", b"\x00\x00\xff", {"t", "u", "v"}),
        ("connect", subscription("t"), {"t", "u", "v"}),
    ],
)
def test_subscribed_topics(protocol_type, metadata, topics):
    scene = Scene()
    joined = scene.join("", ("range", metadata), protocol_type=protocol_type, version=3)
    scene.pass_ms(DELAY_MS)
    member = joined.answer.member_id
    assert {topic for topic in ("t", "u", "v") if scene.group.is_subscribed_to(topic)} == topics
    is_readable = protocol_type == "consumer"
    assert error_of(scene.group.check_offset_delete) is (ErrorCode.NONE if is_readable else ErrorCode.NON_EMPTY_GROUP)
    scene.leave((member, None))
    assert not any(scene.group.is_subscribed_to(topic) for topic in ("t", "u", "v"))
    assert error_of(scene.group.check_offset_delete) is ErrorCode.NONE


def test_subscriptions_of_the_next_generation_count():
    scene = Scene()
    (member,) = scene.stable(1, RANGE)
    assert not scene.group.is_subscribed_to("u")
    scene.join(member, ("range", subscription("u")))
    assert scene.group.is_subscribed_to("u")
    assert not scene.group.is_subscribed_to("t")
