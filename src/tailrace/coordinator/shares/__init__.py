"""Share groups (KIP-932): their members, what they are assigned, and which share-partitions they have."""
