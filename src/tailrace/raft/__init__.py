"""Pull-based Raft in the manner of KRaft (KIP-595, 630, 853, 996), as a pure machine: `step.step`. It sees no
clock, disk, socket or event loop; `broker.quorum.driver` does what it says."""
