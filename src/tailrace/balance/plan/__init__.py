"""Pure decisions: from a picture of the cluster to the moves that balance it."""
