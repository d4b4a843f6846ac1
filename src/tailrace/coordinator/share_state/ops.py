"""What leaders of share-partitions and coordinators of share groups ask of a share coordinator, each about one
share-partition; who asks about several splits the request.

An epoch of -1 stands for "whatever it is". Reading with a new leader epoch is stored too: from then on an older leader
may not write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tailrace.coordinator.op import Call, Caller, Result, StoredRecord
from tailrace.coordinator.share_state.batches import StateBatch, overlay
from tailrace.coordinator.share_state.state import (
    UNCHANGED,
    SharePlace,
    ShareState,
    snapshot_record,
    tombstone,
    update_record,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.shares import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

States = Mapping[SharePlace, ShareState]


def initialize_state(states: States, call: Call, caller: Caller, request: InitializeShareGroupStateRequest) -> Result:
    place, asked = _place(request)
    old = states.get(place)
    if old is not None and asked.state_epoch != UNCHANGED and old.state_epoch > asked.state_epoch:
        _fenced(ErrorCode.FENCED_STATE_EPOCH, "state epoch", old.state_epoch, asked.state_epoch)
    _check_exists(call, place)
    state = ShareState(
        snapshot_epoch=0 if old is None else old.snapshot_epoch + 1,
        state_epoch=asked.state_epoch,
        leader_epoch=0 if old is None else old.leader_epoch,
        start_offset=asked.start_offset,
        complete_count=0 if asked.start_offset != UNCHANGED else UNCHANGED,
        create_timestamp_ms=call.now_ms,
        write_timestamp_ms=call.now_ms,
        batches=(),
    )
    return Result((snapshot_record(place, state),), ((caller, _answer(InitializeShareGroupStateResponse, place)),))


def read_state(states: States, call: Call, caller: Caller, request: ReadShareGroupStateRequest) -> Result:
    place, asked = _place(request)
    state = states.get(place)
    if state is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")
    _check_leader(state, asked.leader_epoch)
    _check_exists(call, place)
    batch = ReadShareGroupStateResponse.StateBatch
    answer = _answer(
        ReadShareGroupStateResponse,
        place,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[batch(**each._asdict()) for each in state.batches],
    )
    if asked.leader_epoch in (UNCHANGED, state.leader_epoch):
        return Result(answers=((caller, answer),))
    record = _next_record(
        call,
        place,
        state,
        leader_epoch=asked.leader_epoch,
        start_offset=state.start_offset,
        complete_count=state.complete_count,
        batches=(),
    )
    return Result((record,), ((caller, answer),))


def write_state(states: States, call: Call, caller: Caller, request: WriteShareGroupStateRequest) -> Result:
    place, asked = _place(request)
    state = states.get(place)
    if state is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")
    _check_leader(state, asked.leader_epoch)
    if asked.state_epoch != UNCHANGED and state.state_epoch > asked.state_epoch:
        _fenced(ErrorCode.FENCED_STATE_EPOCH, "state epoch", state.state_epoch, asked.state_epoch)
    _check_exists(call, place)
    record = _next_record(
        call,
        place,
        state,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        complete_count=asked.delivery_complete_count,
        batches=[
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        ],
    )
    return Result((record,), ((caller, _answer(WriteShareGroupStateResponse, place)),))


def delete_state(states: States, _call: Call, caller: Caller, request: DeleteShareGroupStateRequest) -> Result:
    place, _ = _place(request)
    records = (tombstone(place),) if place in states else ()
    return Result(records, ((caller, _answer(DeleteShareGroupStateResponse, place)),))


def read_summary(states: States, call: Call, caller: Caller, request: ReadShareGroupStateSummaryRequest) -> Result:
    place, _ = _place(request)
    _check_exists(call, place)
    state = states.get(place)
    if state is None:
        answer = _answer(ReadShareGroupStateSummaryResponse, place, start_offset=UNCHANGED)
    else:
        answer = _answer(
            ReadShareGroupStateSummaryResponse,
            place,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
        )
    return Result(answers=((caller, answer),))


def _place(request: Any) -> tuple[SharePlace, Any]:
    """Whose state a request is about, and what it says of it."""
    (topic,) = request.topics
    (asked,) = topic.partitions
    if asked.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The partition id {asked.partition} is negative.")
    return SharePlace(request.group_id, Uuid(topic.topic_id), asked.partition), asked


def _answer(response_type: Any, place: SharePlace, **fields: object) -> Any:
    (results,) = (field for field in response_type.fields if field.name == "results")
    (partitions,) = (field for field in results.struct.fields if field.name == "partitions")
    result = partitions.struct(partition=place.partition, **fields)
    return response_type(results=[results.struct(topic_id=place.topic_id, partitions=[result])])


def _check_leader(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch != UNCHANGED and state.leader_epoch > leader_epoch:
        _fenced(ErrorCode.FENCED_LEADER_EPOCH, "leader epoch", state.leader_epoch, leader_epoch)


def _fenced(code: ErrorCode, what: str, current: int, asked: int) -> NoReturn:
    raise KafkaError(code, f"The {what} is {current} by now, and {asked} is older.")


def _check_exists(call: Call, place: SharePlace) -> None:
    topic = call.image.topic_by_id(place.topic_id)
    if topic is None or place.partition not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")


def _next_record(
    call: Call,
    place: SharePlace,
    state: ShareState,
    *,
    leader_epoch: int,
    start_offset: int,
    complete_count: int,
    batches: list[StateBatch] | tuple[()],
) -> StoredRecord:
    """An update, and after so many of them a snapshot."""
    leader_epoch = state.leader_epoch if leader_epoch == UNCHANGED else leader_epoch
    if state.update_count < call.config.share_coordinator_snapshot_update_records_per_snapshot:
        return update_record(
            place,
            state,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            complete_count=complete_count,
            batches=batches,
        )
    start_offset = state.start_offset if start_offset == UNCHANGED else start_offset
    return snapshot_record(
        place,
        state._replace(
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            complete_count=complete_count,
            create_timestamp_ms=call.now_ms,
            write_timestamp_ms=call.now_ms,
            batches=tuple(overlay(state.batches, batches, start_offset=start_offset)),
        ),
    )


OPS: Mapping[int, Callable[[States, Call, Caller, Any], Result]] = {
    InitializeShareGroupStateRequest.api_key: initialize_state,
    ReadShareGroupStateRequest.api_key: read_state,
    WriteShareGroupStateRequest.api_key: write_state,
    DeleteShareGroupStateRequest.api_key: delete_state,
    ReadShareGroupStateSummaryRequest.api_key: read_summary,
}
