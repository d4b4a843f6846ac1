"""Every transition of a transactional id, with Kafka's codes, live and after a failover."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tailrace.coordinator.op import Result
from tailrace.coordinator.transactions.transaction import LAST_EPOCH, TransactionState
from tailrace.model.errors import ErrorCode

from .scene import ID, Scene, add_request, end_request, errors_of, init_request, offsets_request

P0, P1 = ("orders", 0), ("orders", 1)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def begin(scene: Scene, *, version: int = 2) -> tuple[int, int]:
    """A producer with an open transaction; of version 2 the broker adds the partitions."""
    answer = scene.init()
    producer = answer.producer_id, answer.producer_epoch
    scene.add(producer, [P0], version=5 if version == 2 else 3)
    return producer


# ---- InitProducerId


def test_each_init_gives_the_next_epoch_and_fences_the_one_before(scene: Scene) -> None:
    first, second = scene.init(), scene.init()
    assert (first.producer_id, first.producer_epoch) == (5000, 0)
    assert (second.producer_id, second.producer_epoch) == (5000, 1)
    assert scene.refusal_of(add_request((5000, 0), [P0]), 3) is ErrorCode.PRODUCER_FENCED
    assert scene.refusal_of(end_request((5000, 0)), 5) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(scene: Scene, timeout_ms: int) -> None:
    assert scene.refusal_of(init_request(timeout_ms=timeout_ms), 5) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_names_its_epoch_gets_the_next_and_the_same_again(scene: Scene) -> None:
    scene.init()
    assert scene.init(expected=(5000, 0)).producer_epoch == 1
    assert scene.init(expected=(5000, 0)).producer_epoch == 1  # The answer was lost.
    assert scene.init(expected=(5000, 1)).producer_epoch == 2
    assert scene.refusal_of(init_request(expected=(5000, 0)), 5) is ErrorCode.PRODUCER_FENCED
    assert scene.refusal_of(init_request(expected=(4999, 2)), 5) is ErrorCode.PRODUCER_FENCED
    assert scene.refusal_of(init_request(expected=(5000, -1)), 5) is ErrorCode.INVALID_REQUEST


def test_an_init_amid_a_transaction_aborts_it_and_sends_the_client_away_once(scene: Scene) -> None:
    producer = begin(scene)
    assert scene.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.transaction().state is TransactionState.PREPARE_ABORT
    assert scene.add(producer, [P1]) is None
    late = scene.last_asker
    marker = scene.write_markers()
    assert (marker.producer_epoch, marker.transaction_result) == (1, False)
    assert errors_of(late.answer) == [ErrorCode.PRODUCER_FENCED]
    assert scene.init().producer_epoch == 2


def test_a_zombie_does_not_abort_the_transaction_of_its_successor(scene: Scene) -> None:
    scene.init()
    begin(scene)
    assert scene.refusal_of(init_request(expected=(5000, 0)), 5) is ErrorCode.PRODUCER_FENCED
    assert scene.transaction().state is TransactionState.ONGOING


def test_an_init_waits_for_the_end_of_what_was_decided(scene: Scene) -> None:
    producer = begin(scene)
    scene.end(producer)
    assert scene.init() is None
    waiting = scene.last_asker
    scene.write_markers()
    assert waiting.answer.producer_epoch == 2


def test_who_has_waited_for_long_enough_is_sent_away(scene: Scene) -> None:
    producer = begin(scene)
    scene.end(producer)
    scene.init()
    waiting = scene.last_asker
    scene.sleep_ms(99)
    assert waiting.answer is None
    scene.sleep_ms(1)
    assert waiting.answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    scene.write_markers()
    assert scene.transaction().state is TransactionState.COMPLETE_COMMIT


def test_a_producer_whose_epochs_are_used_up_gets_a_new_id(scene: Scene) -> None:
    scene.init()
    scene.machine.state.transactions[ID] = scene.transaction()._replace(producer_epoch=LAST_EPOCH)
    answer = scene.init(expected=(5000, LAST_EPOCH))
    assert (answer.producer_id, answer.producer_epoch) == (5001, 0)
    # The answer was lost: it has the old id, and the new epoch is the one that was given.
    again = scene.init(expected=(5000, LAST_EPOCH))
    assert (again.producer_id, again.producer_epoch) == (5001, 0)


def test_without_a_producer_id_at_hand_the_client_comes_again(scene: Scene) -> None:
    scene.producer_ids.clear()
    assert scene.refusal_of(init_request(), 5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.log == []


# ---- partitions


def test_partitions_are_added_once(scene: Scene) -> None:
    producer = begin(scene, version=0)
    length = len(scene.log)
    assert errors_of(scene.add(producer, [P0])) == [ErrorCode.NONE]
    assert len(scene.log) == length
    assert errors_of(scene.add(producer, [P0, P1])) == [ErrorCode.NONE, ErrorCode.NONE]
    assert scene.transaction().partitions == {P0, P1}


def test_offsets_are_records_of_the_partition_of_their_group(scene: Scene) -> None:
    producer = begin(scene, version=0)
    assert scene.ask(offsets_request(producer, "g"), 3).error_code == 0
    assert ("__consumer_offsets", ord("g") % 50) in scene.transaction().partitions


def test_verifying_tells_which_partitions_are_missing_and_adds_none(scene: Scene) -> None:
    producer = begin(scene, version=0)
    answer = scene.add(producer, [P0, P1], version=4, verify=True)
    assert errors_of(answer) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert scene.transaction().partitions == {P0}


def test_others_may_not_add(scene: Scene) -> None:
    assert scene.refusal_of(add_request((5000, 0), [P0]), 3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    scene.init()
    assert scene.refusal_of(add_request((4000, 0), [P0]), 3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert scene.refusal_of(add_request((5000, 1), [P0]), 3) is ErrorCode.PRODUCER_FENCED
    assert scene.refusal_of(offsets_request((5000, 1)), 3) is ErrorCode.PRODUCER_FENCED


def test_the_next_transaction_waits_for_the_markers_of_the_last(scene: Scene) -> None:
    producer_id, epoch = begin(scene)
    ended = scene.end((producer_id, epoch))
    assert (ended.producer_id, ended.producer_epoch) == (producer_id, epoch + 1)
    assert scene.add((producer_id, epoch + 1), [P1], version=5) is None
    first = scene.last_asker
    assert scene.add((producer_id, epoch + 1), [P0], version=5) is None
    second = scene.last_asker
    scene.write_markers()
    assert errors_of(first.answer) == errors_of(second.answer) == [ErrorCode.NONE]
    assert scene.transaction().state is TransactionState.ONGOING
    assert scene.transaction().partitions == {P0, P1}


# ---- the end


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("fails_over", [True, False])
def test_a_transaction_ends_as_it_was_decided(scene: Scene, is_commit: bool, fails_over: bool) -> None:
    producer_id, epoch = begin(scene)
    scene.end((producer_id, epoch), commit=is_commit)
    assert scene.transaction().state.is_prepared
    if fails_over:
        scene.fail_over()
    marker = scene.write_markers()
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_version) == (producer_id, epoch + 1, 2)
    assert marker.transaction_result is is_commit
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert (scene.transaction().state, scene.transaction().partitions) == (done, frozenset())
    assert not scene.owed


def test_an_older_client_keeps_its_epoch(scene: Scene) -> None:
    producer_id, epoch = begin(scene, version=0)
    scene.end((producer_id, epoch), version=4)
    marker = scene.write_markers()
    assert (marker.producer_epoch, marker.transaction_version) == (epoch, 0)
    assert errors_of(scene.add((producer_id, epoch), [P0])) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("fails_over", [True, False])
def test_an_end_that_is_sent_again_is_answered_again(scene: Scene, version: int, fails_over: bool) -> None:
    producer = begin(scene, version=2 if version == 5 else 0)
    scene.end(producer, version=version)
    if fails_over:
        scene.fail_over()
    askers = []
    for commit in (True, False):
        assert scene.end(producer, version=version, commit=commit) is None
        askers.append(scene.last_asker)
    scene.write_markers()
    assert askers[0].answer.error_code == ErrorCode.NONE
    assert askers[1].answer.error_code == ErrorCode.INVALID_TXN_STATE
    if fails_over:
        scene.fail_over()
    again = scene.end(producer, version=version)
    assert (again.error_code, again.producer_epoch) == (0, scene.transaction().producer_epoch)
    assert scene.refusal_of(end_request(producer, commit=False), version) is ErrorCode.INVALID_TXN_STATE
    assert not scene.owed, "nothing is written twice"


@pytest.mark.parametrize("is_last_epoch", [False, True])
@pytest.mark.parametrize("fails_over", [True, False])
def test_the_epoch_just_handed_out_may_end_its_transaction_at_once(
    scene: Scene, is_last_epoch: bool, fails_over: bool
) -> None:
    """While the markers of the last one are still being written."""
    producer_id, epoch = begin(scene)
    if is_last_epoch:
        epoch = LAST_EPOCH
        scene.machine.state.transactions[ID] = scene.transaction()._replace(producer_epoch=epoch)
    ended = scene.end((producer_id, epoch))
    if fails_over:
        scene.fail_over()
    told = ended.producer_id, ended.producer_epoch
    assert scene.end(told, commit=False) is None
    impatient = scene.last_asker
    scene.sleep_ms(100)
    assert impatient.answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.end(told, commit=False) is None
    patient = scene.last_asker
    scene.write_markers()
    assert (patient.answer.error_code, patient.answer.producer_epoch) == (0, told[1] + 1)
    scene.write_markers()
    assert scene.transaction().state is TransactionState.COMPLETE_ABORT


def test_a_delayed_end_does_not_end_a_later_transaction(scene: Scene) -> None:
    producer_id, epoch = begin(scene)
    scene.end((producer_id, epoch))
    scene.write_markers()
    scene.add((producer_id, epoch + 1), [P1], version=5)
    assert scene.refusal_of(end_request((producer_id, epoch), commit=False), 5) is ErrorCode.PRODUCER_FENCED
    assert scene.transaction().state is TransactionState.ONGOING


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_zombie_is_not_taken_for_an_older_client_that_has_its_id_now(scene: Scene, is_complete: bool) -> None:
    """The epoch of a client of version 1 stays when its transaction ends: it was not raised for the zombie."""
    zombie = begin(scene)
    scene.end(zombie)
    scene.write_markers()
    producer_id, heir = zombie[0], scene.init()
    scene.add((producer_id, heir.producer_epoch), [P0], version=3)
    scene.end((producer_id, heir.producer_epoch), commit=False, version=4)
    raised = producer_id, heir.producer_epoch - 1
    if is_complete:
        scene.write_markers()
        assert scene.refusal_of(end_request(raised, commit=False), 5) is ErrorCode.PRODUCER_FENCED
    else:
        assert scene.end(raised, commit=False) is None
        zombies = scene.last_asker
        scene.write_markers()
        assert zombies.answer.error_code == ErrorCode.PRODUCER_FENCED


def test_what_has_not_begun_may_be_aborted_by_version_2_alone(scene: Scene) -> None:
    answer = scene.init()
    producer_id, epoch = answer.producer_id, answer.producer_epoch
    assert scene.refusal_of(end_request((producer_id, epoch)), 5) is ErrorCode.INVALID_TXN_STATE
    assert scene.refusal_of(end_request((producer_id, epoch), commit=False), 4) is ErrorCode.INVALID_TXN_STATE
    ended = scene.end((producer_id, epoch), commit=False)
    assert ended.producer_epoch == epoch + 1
    assert scene.write_markers().topics == []
    assert scene.transaction().state is TransactionState.COMPLETE_ABORT
    # Sent again it is answered again; asked for anew, with the new epoch, it raises the epoch again.
    assert scene.end((producer_id, epoch), commit=False).producer_epoch == epoch + 1
    assert scene.end((producer_id, epoch + 1), commit=False).producer_epoch == epoch + 2


@pytest.mark.parametrize("fails_over", [True, False])
def test_the_last_epoch_of_a_producer_ends_with_a_new_id(scene: Scene, fails_over: bool) -> None:
    producer_id, _ = begin(scene)
    scene.machine.state.transactions[ID] = scene.transaction()._replace(producer_epoch=LAST_EPOCH)
    ended = scene.end((producer_id, LAST_EPOCH))
    assert (ended.producer_id, ended.producer_epoch) == (producer_id + 1, 0)
    if fails_over:
        scene.fail_over()
    marker = scene.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (producer_id, LAST_EPOCH + 1)
    again = scene.end((producer_id, LAST_EPOCH))
    assert (again.producer_id, again.producer_epoch) == (producer_id + 1, 0)


@pytest.mark.parametrize("fails_over", [True, False])
def test_a_producer_that_was_told_its_new_id_waits_for_the_markers_of_the_old_one(
    scene: Scene, fails_over: bool
) -> None:
    producer_id, _ = begin(scene)
    scene.machine.state.transactions[ID] = scene.transaction()._replace(producer_epoch=LAST_EPOCH)
    scene.end((producer_id, LAST_EPOCH))
    if fails_over:
        scene.fail_over()
    told = producer_id + 1, 0
    assert scene.add(told, [P1], version=5) is None
    adding = scene.last_asker
    assert scene.ask(offsets_request(told), 4) is None
    committing = scene.last_asker
    assert scene.init(expected=told) is None
    assert scene.add((producer_id, LAST_EPOCH), [P1], version=5) is None
    late = scene.last_asker
    scene.write_markers()
    assert errors_of(adding.answer) == [ErrorCode.NONE]
    assert committing.answer.error_code == 0
    assert late.answer is None, "the one before it has aborted what the first two began"
    scene.write_markers()
    assert errors_of(late.answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# ---- time


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("fails_over", [True, False])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    scene: Scene, version: int, fails_over: bool
) -> None:
    producer_id, epoch = begin(scene, version=version)
    scene.sleep_ms(59_000)
    if fails_over:
        scene.fail_over()
    scene.sleep_ms(999)
    assert scene.transaction().state is TransactionState.ONGOING
    scene.sleep_ms(1)
    marker = scene.write_markers()
    assert (marker.producer_epoch, marker.transaction_result) == (epoch + 1, False)
    assert scene.refusal_of(add_request((producer_id, epoch), [P0]), 3) is ErrorCode.PRODUCER_FENCED
    assert scene.refusal_of(end_request((producer_id, epoch)), 4) is ErrorCode.PRODUCER_FENCED


def test_the_time_of_a_transaction_counts_from_its_own_beginning(scene: Scene) -> None:
    producer_id, epoch = begin(scene)
    scene.sleep_ms(50_000)
    scene.end((producer_id, epoch))
    scene.write_markers()
    scene.sleep_ms(20_000)
    scene.add((producer_id, epoch + 1), [P0], version=5)
    scene.sleep_ms(59_999)
    assert scene.transaction().state is TransactionState.ONGOING
    scene.sleep_ms(1)
    assert scene.transaction().state is TransactionState.PREPARE_ABORT


def test_ids_that_nobody_uses_are_forgotten_but_not_amid_a_transaction(scene: Scene) -> None:
    scene.init(timeout_ms=900_000)
    scene.fail_over()
    week_ms = 7 * 24 * 3_600_000
    scene.sleep_ms(week_ms - 3_600_000)
    scene.sleep_ms(1)
    assert ID in scene.machine.state.transactions
    scene.sleep_ms(3_600_000)
    assert ID not in scene.machine.state.transactions
    assert scene.log[-1][1] is None
    scene.fail_over()
    assert scene.machine.state.transactions == {}


def test_a_decision_whose_markers_were_not_begun_can_be_asked_for_again(scene: Scene) -> None:
    producer = begin(scene)
    scene.end(producer)
    scene.owed.clear()
    scene.apply(scene.machine.owe_markers(ID))
    scene.write_markers()
    scene.apply(scene.machine.owe_markers(ID))
    assert not scene.owed


def test_idle_ids_go_in_batches_that_can_be_written(scene: Scene) -> None:
    scene.init()
    scene.fail_over()
    known = scene.machine.state.transactions
    for number in range(50):
        transaction = scene.transaction()._replace(transactional_id=f"{number:030000d}")
        scene.apply(Result([transaction.record(transaction_version=2)]))
    scene.clock.advance_ms(scene.config.transactional_id_expiration_ms)
    with patch.object(scene, "apply", wraps=scene.apply) as apply:
        scene.sleep_ms(scene.config.transaction_remove_expired_transaction_cleanup_interval_ms)
    assert not known
    results = [each.args[0] for each in apply.call_args_list]
    assert max(sum(len(key.transactional_id) for key, _, _ in result.records) for result in results) < 200_000


def test_those_who_wait_behind_another_end_go_on_waiting_and_cost_nothing(scene: Scene) -> None:
    producer_id, epoch = begin(scene)
    scene.end((producer_id, epoch))
    assert scene.end((producer_id, epoch + 1), commit=False) is None
    adding = []
    for partition in (P0, P1):
        assert scene.add((producer_id, epoch + 2), [partition], version=5) is None
        adding.append(scene.last_asker)
    scene.write_markers()
    assert scene.transaction().state is TransactionState.PREPARE_ABORT
    assert scene.machine.on_deadline(scene.call()) is None, "nothing is due"
    scene.sleep_ms(99)
    assert [each.answer for each in adding] == [None, None]
    scene.write_markers()
    assert [errors_of(each.answer) for each in adding] == [[ErrorCode.NONE], [ErrorCode.NONE]]


def test_older_versions_are_told_what_they_know_though_they_have_waited(scene: Scene) -> None:
    """PRODUCER_FENCED is younger than the API (KIP-588)."""
    producer = begin(scene)
    scene.init()
    assert scene.add(producer, [P1], version=1) is None
    late = scene.last_asker
    scene.write_markers()
    assert errors_of(late.answer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
