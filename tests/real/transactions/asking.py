"""What brokers say of transactions, each asked directly."""

import time
from typing import Any

from tailrace.testing import Cluster
from tailrace.wire.apis.transactions import DescribeTransactionsRequest
from tests.real.groups.asker import Asker

WAIT_S = 60.0


def describe(cluster: Cluster, transactional_id: str) -> Any:
    """By whoever coordinates it; None while nobody does."""
    for name, facts in cluster.nodes.items():
        if name.startswith("broker-") and facts["state"] == "ready":
            try:
                with Asker(facts["bootstrap"]) as asker:
                    answer = asker.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
            except OSError:
                continue
            if answer.transaction_states[0].error_code == 0:
                return answer.transaction_states[0]
    return None


def wait_for_state(cluster: Cluster, transactional_id: str, wanted: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        described = describe(cluster, transactional_id)
        if described is not None and described.transaction_state == wanted:
            return
        assert time.monotonic() < deadline, f"not {wanted} in time: {described}"
        time.sleep(0.05)
