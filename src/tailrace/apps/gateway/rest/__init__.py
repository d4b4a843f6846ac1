"""Confluent's REST API v3: the resources of a cluster, each with its kind and its address."""
