"""Records from the cluster to whoever listens: events and sockets, alone or as a member of a group."""
