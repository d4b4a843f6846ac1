"""The state of one partition of __transaction_state: its transactional ids, their deadlines, and who waits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.coordinator.deadlines import Deadlines
from tailrace.coordinator.op import Call, Caller, Result, Steps, StoredRecord, Told
from tailrace.coordinator.transactions.transaction import Transaction
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.schema import Message

TRANSACTION_VERSION = "transaction.version"

# What is due, and of which transactional id: "abort" (its timeout), "waiters" (have waited for long enough), "resume"
# (they need not wait any more); and "expiry", of the partition as a whole.
Due = tuple[str, str]


_FORGOTTEN_PER_STEP = 500


class Waiter(NamedTuple):
    """A request that came while the transaction before it was ending."""

    caller: Caller
    request: Message


class TransactionsState:
    """`transactions` is changed by replay alone, so that the next leader loads the same from the log; the rest is soft
    and begins anew with each leadership."""

    def __init__(self, take_producer_id: Callable[[], int | None], owe_markers: Callable[[str], Told]) -> None:
        """`take_producer_id` gives None while there is none at hand. `owe_markers` gives, for a transactional id, the
        one who writes its markers once the decision is committed, for before that a failover can undo it, and tells
        `ending.complete` then."""
        self.transactions: dict[str, Transaction] = {}
        self.deadlines: Deadlines[Due] = Deadlines()
        self.waiters: dict[str, list[Waiter]] = {}
        # The last producer epochs in transitions that are about to be replayed: the log does not hold them.
        self.last_epochs: dict[str, int] = {}
        self.work: OrderedDict[str, Callable[[Call], Steps]] = OrderedDict()
        self.owe_markers = owe_markers
        self._take_producer_id = take_producer_id

    def forget(self) -> Iterator[None]:
        """Everything, in steps. Work refers to the state, which so would outlive its partition."""
        self.work.clear()
        self.waiters.clear()
        while self.transactions:
            for _ in range(min(_FORGOTTEN_PER_STEP, len(self.transactions))):
                self.transactions.popitem()
            yield
        yield from self.deadlines.forget()

    def find(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"Transactional id {transactional_id} is not known here: it was never used, or has expired. "
                "Call InitProducerId.",
            )
        return transaction

    def is_ending(self, transactional_id: str) -> bool:
        """What belongs to the next transaction waits, whoever sends it: its producer has the next epoch, or id,
        already, and is not fenced by the decision that gave it."""
        return self.find(transactional_id).state.is_prepared

    def check_producer(self, transactional_id: str, *, producer_id: int, producer_epoch: int) -> Transaction:
        """The transaction of the producer that owns the id now; raises for anybody else."""
        transaction = self.find(transactional_id)
        if transaction.producer_id != producer_id:
            raise wrong_producer(transaction, producer_id)
        if transaction.producer_epoch != producer_epoch:
            raise fenced(transaction, producer_epoch)
        return transaction

    def take_producer_id(self) -> int:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "New producer ids are being asked for")
        return producer_id

    def store(self, call: Call, transaction: Transaction) -> StoredRecord:
        self.last_epochs[transaction.transactional_id] = transaction.last_producer_epoch
        return transaction.record(transaction_version=call.image.features.get(TRANSACTION_VERSION, 0))

    def wait_for_end(self, call: Call, caller: Caller, request: Message, transactional_id: str) -> Result:
        """Markers are written within milliseconds, and a client that is sent away comes back after twenty at best. So
        the request waits, but not for long."""
        waiters = self.waiters.setdefault(transactional_id, [])
        waiters.append(Waiter(caller, request))
        if len(waiters) == 1:
            self.limit_wait(call, transactional_id)
        return Result()

    def limit_wait(self, call: Call, transactional_id: str) -> None:
        wait_ms = call.config.add_partitions_to_txn_retry_backoff_max_ms
        self.deadlines.set(("waiters", transactional_id), call.monotonic_ms + wait_ms)

    def take_waiters(self, transactional_id: str) -> list[Waiter]:
        self.deadlines.cancel(("waiters", transactional_id))
        self.deadlines.cancel(("resume", transactional_id))
        return self.waiters.pop(transactional_id, [])


def wrong_producer(transaction: Transaction, producer_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"Transactional id {transaction.transactional_id} belongs to producer {transaction.producer_id}, "
        f"not {producer_id}. Call InitProducerId.",
    )


def fenced(transaction: Transaction, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"Producer {transaction.producer_id} of transactional id {transaction.transactional_id} has epoch "
        f"{transaction.producer_epoch}, not {producer_epoch}: a newer instance has taken over, or its transaction has "
        "timed out.",
    )
