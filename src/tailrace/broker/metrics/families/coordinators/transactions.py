"""Transactional ids that this broker coordinates: how many, in which state, and for how long.

Kafka tells of its coordinator only how long loading took, so all names here are ours. A transaction that is decided and
stays in a Prepare state has markers that no leader takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import own_counter, own_gauge
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.transaction import TransactionState
from tailrace.model.metrics.text import label

if TYPE_CHECKING:
    from tailrace.broker.coordinators.transactions import TransactionCoordinators
    from tailrace.broker.metrics.watched import Watched
    from tailrace.coordinator.transactions.transaction import Transaction
    from tailrace.model.metrics.text import Text

_SHARDS = own_gauge(
    "transaction_coordinator_partitions", "Partitions of __transaction_state that are led here, by state."
)
_IDS = own_gauge("transactional_ids", "Transactional ids that this broker coordinates, by the state of the last one.")
_OPEN = own_gauge("transaction_open_max_seconds", "How long the oldest transaction that is not decided is open.")
_ENDING = own_gauge(
    "transaction_ending_max_seconds", "How long the oldest decided transaction waits for its markers to be written."
)
_ENDED = own_counter("transactions_ended", "Transactions whose markers this broker has had written, by result.")
# Those that Kafka has and nothing here is ever in are left out.
_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
_CHUNK = 500


def pieces(watched: Watched, text: Text, running: TransactionCoordinators) -> Iterator[str]:
    shards = list(running.shards.values())
    states: Counter[TransactionState] = Counter()
    now_ms = watched.services.ports.clock.wall_ms()
    opened_ms = decided_ms = now_ms
    for shard in shards:
        found: list[Transaction] = []
        if isinstance(shard.machine, TransactionMachine):
            found = list(shard.machine.state.transactions.values())
        yield ""
        for start in range(0, len(found), _CHUNK):
            for each in found[start : start + _CHUNK]:
                states[each.state] += 1
                if each.state is TransactionState.ONGOING:
                    opened_ms = min(opened_ms, each.start_ms)
                elif each.state.is_prepared:
                    decided_ms = min(decided_ms, each.updated_ms)
            yield ""
    loaded = Counter(shard.state.value for shard in shards)
    yield text.write(_SHARDS, [(label(state=state), count) for state, count in sorted(loaded.items())])
    yield text.write(_IDS, [(label(state=state.title), states[state]) for state in _STATES])
    yield text.write(_OPEN, [("", (now_ms - opened_ms) / 1000)])
    yield text.write(_ENDING, [("", (now_ms - decided_ms) / 1000)])
    ended = ((running.committed_count, "commit"), (running.aborted_count, "abort"))
    yield text.write(_ENDED, [(label(result=result), count) for count, result in ended])
