"""What `tailrace top` shows: rates and states of a cluster, from two readings of its nodes' metrics."""
