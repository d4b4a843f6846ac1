"""What is seen of nodes on this machine from outside: where their metrics are told, and what a process takes."""
