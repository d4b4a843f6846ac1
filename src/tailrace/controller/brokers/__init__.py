"""Brokers and controllers as members of the cluster: who is registered, who is heard, who is fenced."""
