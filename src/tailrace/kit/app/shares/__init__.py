"""Handlers that are members of share groups (KIP-932): topics as queues."""
