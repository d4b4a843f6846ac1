"""The settings of a node that is a cluster by itself: `tailrace up` and the tests kit start from these."""


def single_node_settings(host: str, port: int, folder: str) -> dict[str, str]:
    """By Kafka's names, as texts: whatever the user sets goes on top."""
    bracketed = f"[{host}]" if ":" in host else host
    return {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{bracketed}:{port}",
        "log.dirs": folder,
        # Kafka's defaults ask for three brokers, and internal topics could never be created.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Waiting 3 s for more members suits a fleet that is being rolled out, not one program being tried.
        "group.initial.rebalance.delay.ms": "0",
    }
