"""The coordinator of the transactional ids of one partition of __transaction_state: a pure machine.

It has the shape of `coordinator.machine.GroupMachine`: ops and deadlines decide, replay changes. What it owes the world
besides answers is markers: the decision of a transaction is answered to `owe_markers` too, once it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tailrace.catalogue import AnsweredBy, answered_by, load
from tailrace.controller.image import MetadataImage
from tailrace.coordinator.op import Call, Caller, Producer, Result, Steps, Told
from tailrace.coordinator.transactions import ending, timers
from tailrace.coordinator.transactions.state import TransactionsState
from tailrace.coordinator.transactions.transaction import read_transaction
from tailrace.coordinator.transactions.waiters import refuse
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH
from tailrace.model.ports import Bytes
from tailrace.wire.apis.stored_records import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message

_OPS: dict[int, Callable[[TransactionsState, Call, Caller, Any], Result]] = {
    api.key: load(f"tailrace.coordinator.{api.op}") for api in answered_by(AnsweredBy.TRANSACTIONS)
}


class TransactionMachine:
    def __init__(self, take_producer_id: Callable[[], int | None], owe_markers: Callable[[str], Told]) -> None:
        self.state = TransactionsState(take_producer_id, owe_markers)

    def op(self, call: Call, caller: Caller, request: Message) -> Result:
        """Raises KafkaError if the request fails as a whole."""
        op = _OPS.get(request.api_key)
        if op is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"No transaction serves {type(request).__name__}.")
        return op(self.state, call, caller, request)

    def replay(
        self, key: Message, value: Message | None, _producer: Producer | None = None, _stored: object = None
    ) -> None:
        assert isinstance(key, TransactionLogKey), "transactions have one type of record"
        transactional_id = key.transactional_id
        last_epoch = self.state.last_epochs.pop(transactional_id, NO_PRODUCER_EPOCH)
        if value is None:
            self.state.transactions.pop(transactional_id, None)
        else:
            assert isinstance(value, TransactionLogValue), "transactions have one type of record"
            self.state.transactions[transactional_id] = read_transaction(key, value, last_epoch)

    def replay_stored(self, key: Bytes, value: Bytes | None, producer: Producer | None = None) -> None:
        self.replay(*decode_coordinator_record(TRANSACTION_RECORDS, key, value), producer)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        raise AssertionError(f"producer {producer_id} ended a transaction on __transaction_state itself ({is_commit=})")

    def on_loaded(self, call: Call) -> list[Result]:
        return timers.on_loaded(self.state, call)

    def on_image(self, _call: Call, _old: MetadataImage) -> list[Result]:
        return []

    def next_deadline_ms(self) -> float | None:
        """When `on_deadline` wants to be called, by the monotonic clock; it may change with every op."""
        return self.state.deadlines.next_ms()

    def on_deadline(self, call: Call) -> Result | None:
        """One thing that is due; None if nothing is. To be called until then."""
        due = self.state.deadlines.pop_due(call.monotonic_ms)
        if due is None:
            return None
        return self._resume(call, due[1]) if due[0] == "resume" else timers.on_due(self.state, call, due)

    def take_work(self, call: Call) -> Steps | None:
        if not self.state.work:
            return None
        _, begin = self.state.work.popitem(last=False)
        return begin(call)

    def forget(self) -> Iterator[None]:
        """Lets go of all that it holds, in steps: freeing much at once would hold the loop."""
        return self.state.forget()

    def owe_markers(self, transactional_id: str) -> Result:
        return ending.owe_markers(self.state, transactional_id)

    def complete(self, call: Call, transactional_id: str, *, producer_id: int, epoch: int) -> Result:
        return ending.complete(self.state, call, transactional_id, producer_id=producer_id, epoch=epoch)

    def _resume(self, call: Call, transactional_id: str) -> Result:
        """One request that has waited. Its records must be replayed before the next one is looked at, for it may have
        ended its transaction in turn: then the others go on waiting."""
        if self.state.is_ending(transactional_id):
            self.state.limit_wait(call, transactional_id)
            return Result()
        (caller, request), *others = self.state.take_waiters(transactional_id)
        if others:
            self.state.waiters[transactional_id] = others
            self.state.deadlines.set(("resume", transactional_id), call.monotonic_ms)
        try:
            return self.op(call, caller, request)
        except KafkaError as error:
            return Result(answers=[(caller, refuse(request, caller.api_version, error.code))])
