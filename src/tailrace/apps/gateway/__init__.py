"""Produce and consume by HTTP, for programs without a Kafka client: Confluent's REST API v3, a plain JSON form,
server-sent events and WebSockets.

A client of any Kafka. Where the cluster wants logins, everything is done with the caller's own: the gateway has no
rights to lend.
"""
