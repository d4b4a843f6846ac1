"""Records from requests to the cluster, and what became of each."""
