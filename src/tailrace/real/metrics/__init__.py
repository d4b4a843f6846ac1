"""What is seen of nodes on this machine from outside: where their metrics are told."""
