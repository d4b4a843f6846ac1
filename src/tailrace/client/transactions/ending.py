"""Ends a transaction that another process has written, by the producer id and epoch that it was written under.

Who prepares a transaction and who decides on it need not be the same: whoever decided may have died, and whoever comes
after it ends the same transaction again. That is safe from transaction.version 2 on (KIP-890): the epoch rises with
every end, so that the coordinator tells a request that was sent again from one for the next transaction.
"""

from __future__ import annotations

from tailrace.client.connection import error_code
from tailrace.client.groups.coordinator import CoordinatorKind, find_coordinator
from tailrace.client.lanes import ProducerIdentity
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.wire.apis.transactions import EndTxnRequest, EndTxnResponse

_END_MAX = 5
# The transaction has ended the other way, or another producer has the transactional id now.
SUPERSEDED = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


async def end_transaction(
    cluster: Cluster, transactional_id: str, identity: ProducerIdentity, *, committed: bool, retry_timeout_ms: int
) -> None:
    """Until the coordinator has it on its log; the markers follow. One that has ended the same way already is fine.
    Raises KafkaError, one of SUPERSEDED if this transaction cannot end this way any more."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )

    async def attempt() -> None:
        await cluster.refresh([])
        node_id, _ = await find_coordinator(cluster, transactional_id, CoordinatorKind.TRANSACTION)
        connection = await cluster.connection_to(NodeId(node_id))
        answer = await connection.call(request, EndTxnResponse, version_max=_END_MAX)
        if answer.error_code:
            wanted = "committed" if committed else "aborted"
            message = f"the transaction of {transactional_id} in {identity} is not {wanted}"
            raise KafkaError(error_code(answer.error_code), message)

    await cluster.with_retries(attempt, timeout_ms=retry_timeout_ms)
